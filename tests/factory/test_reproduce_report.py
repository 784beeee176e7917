"""When a cell counts as reproduced, and what the surroundings of a build are made of."""

from __future__ import annotations

import pytest

from wheelfab.reproduce.report import Build, Outcome, Report
from wheelfab.reproduce.surroundings import FIRST, Surroundings


def report(*outcomes: Outcome) -> Report:
    """The report of builds that ended so."""
    builds = tuple(
        Build(name=str(number), outcome=outcome, sha256="0")
        for number, outcome in enumerate(outcomes)
    )
    return Report(
        cell="x",
        wheel="x.whl",
        compiler="g++",
        compiler_locked=True,
        different={},
        same={},
        builds=builds,
    )


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [
        ((Outcome.SAME, Outcome.SAME), True),
        ((Outcome.SAME, Outcome.SAME, Outcome.SAME), True),
        ((Outcome.SAME, Outcome.SAME, Outcome.NOT_COMPARED), True),
        ((Outcome.SAME,), False),
        ((Outcome.SAME, Outcome.NOT_COMPARED), False),
        ((Outcome.SAME, Outcome.SAME, Outcome.DIFFERS), False),
        ((Outcome.SAME, Outcome.SAME, Outcome.FAILED), False),
        ((Outcome.FAILED, Outcome.NOT_COMPARED), False),
    ],
)
def test_two_that_agree_and_none_that_does_not(
    outcomes: tuple[Outcome, ...], *, passed: bool
) -> None:
    assert report(*outcomes).passed is passed


def test_a_build_here_only_gets_its_umask() -> None:
    assert FIRST.command(("x",)) == (
        "sh",
        "-c",
        'umask "$1" && shift && exec "$@"',
        "sh",
        "022",
        "x",
    )


def test_user_and_host_name_are_namespaces_the_host_name_first() -> None:
    around = Surroundings(
        name="n",
        folder="f",
        umask="077",
        zone="Z",
        language="C",
        hash_seed="1",
        user=4321,
        hostname="h",
        core=1,
    )
    words = around.command(("build",))
    assert words[:5] == ("unshare", "--user", "--map-root-user", "--uts", "sh")
    rest = words[words.index("h") + 1 :]
    assert rest[:5] == ("unshare", "--user", "--map-user=4321", "--map-group=4321", "taskset")
    assert words[-2:] == ("077", "build")
    assert around.environment("/home")["TZ"] == "Z"
    assert around.environment("/home")["USER"] == "user4321"
