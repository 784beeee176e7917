"""When a cell counts as reproduced, and what the surroundings of a build are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wheelfab.reproduce.report import Build, Outcome, Report
from wheelfab.reproduce.surroundings import FIRST, Surroundings


def report(*outcomes: Outcome, listed: bool = True, last: str = "") -> Report:
    """The report of builds that ended so, the last of them called ``last``."""
    builds = tuple(
        Build(name=str(number), outcome=outcome, sha256="0")
        for number, outcome in enumerate(outcomes)
    )
    if last:
        builds = (*builds[:-1], replace(builds[-1], name=last))
    return Report(
        cell="x",
        wheel="x.whl",
        compiler="g++",
        compiler_locked=listed,
        different={},
        same={},
        builds=builds,
    )


def test_builds_alike_by_a_compiler_that_the_lock_does_not_list_reproduce_nothing() -> None:
    same, away = Outcome.SAME, Outcome.NOT_COMPARED
    why = "built alike, but by g++, which is not in matrix.lock"
    for outcomes in ((same, same), (same, same, away)):
        assert report(*outcomes, listed=False).failure == why
        assert not report(*outcomes, listed=False).passed
        assert report(*outcomes).passed
    assert report(same, same, same, listed=False, last="given").passed
    assert report(same, same, away, listed=False, last="given").failure == why


def test_a_failure_names_its_builds() -> None:
    same, bad = Outcome.SAME, Outcome.DIFFERS
    assert report(same, bad, Outcome.FAILED).failure == "1, 2 not the same"
    assert report(same, Outcome.NOT_COMPARED).failure == "nothing was compared"


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
