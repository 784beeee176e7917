"""What is investigated after a crash on a host: which command, how often, and for whom."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.factory.test_crash_write import REPORT
from tests.factory.test_hosts_judge import visit
from wheelfab.crash import CrashReport, Reproduced
from wheelfab.host import HostImage
from wheelfab.hosts import crashes
from wheelfab.hosts.crashes import Blame, Casualty, script_of
from wheelfab.hosts.places import DIAGNOSIS, Place, ProcessPlace
from wheelfab.hosts.visits import Visit

PLAN = {
    "schema": 1,
    "stages": [
        ("package", "import demo", False),
        ("torch", "\nimport torch\n", True),
        ("libraries", "demo.load()", True),
    ],
    "repeat": ("libraries", "demo.load()"),
    "state": "\nresult = demo.state()\n",
    "later": [],
    "way": "plain",
    "before": "",
}
ARGV = ("/env/bin/python", "-OO", "/hosts/visit.py", "/plan.json", "torch")
DIED: dict[str, Any] = {"returncode": -11, "ending": "SIGSEGV", "complete": False}


def casualty(
    seen: Visit, mode: str = "torch", cell: str = "cu121-torch2.4", **plan: Any
) -> Casualty:
    """What died on a host."""
    return Casualty(
        visit=seen,
        cell=cell,
        argv=ARGV,
        python=ARGV[:2],
        environment={},
        plan={**PLAN, **plan},
        mode=mode,
        where=f"process debian-12, host dies, {cell}",
        container=" in `wheelfab container diagnosis --base debian-12`",
    )


def died(began: str, **values: Any) -> Visit:
    """A visit that SIGSEGV ended in the stage that it had begun."""
    return visit(began=began, **{**DIED, **values})


def test_the_script_is_the_stages_up_to_the_one_that_died() -> None:
    assert script_of(casualty(died("package"))) == "import demo"
    assert script_of(casualty(died("torch"))) == "import demo\nimport torch"
    before = casualty(died("torch"), before="before()", way="torch-first")
    assert script_of(before) == "before()\nimport torch\nimport demo\nimport torch"


def test_the_state_is_asked_for_as_the_visit_did() -> None:
    asked = "import os\nresult = demo.state()"
    assert script_of(casualty(died("state"), "fresh")) == f"import demo\n{asked}"
    later = casualty(died("state"), "fresh", later=[{"A": "1"}, {"A": "2"}])
    assert script_of(later) == (
        "import demo\nimport os\n"
        "os.environ.update({'A': '1'})\nresult = demo.state()\n"
        "os.environ.update({'A': '2'})\nresult = demo.state()"
    )


def test_a_fork_that_died_is_forked_by_the_script() -> None:
    script = script_of(casualty(visit(forks=(0, -11))))
    compile(script, "script", "exec")
    before, _, child = script.partition("if pid := os.fork():")
    assert "import demo\nimport torch\ndemo.load()\nimport os\nresult = demo.state()" in before
    assert child.endswith("\ndemo.load()\nimport os\nresult = demo.state()")


def test_what_no_plain_script_can_say_is_visited_again() -> None:
    assert script_of(casualty(died("package"), way="threaded")) == ""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], int | None, str]]:
    """What was investigated: command, exit code, stage. Scripts with ``rare`` never crash again."""
    seen = []

    def investigate(command: Any, first: Any, run: Any, *, timeout: float) -> CrashReport:
        del run, timeout
        seen.append((command.argv, first.returncode, command.stage))
        times = 0 if "rare" in command.argv[-1] else 3
        return replace(
            REPORT,
            signature=f"crash-{command.stage}",
            stage=command.stage,
            place=command.place,
            reproduced=Reproduced(times=times, of=3),
        )

    monkeypatch.setattr(crashes, "investigate", investigate)
    return seen


@pytest.fixture
def blame(tmp_path: Path) -> Blame:
    """Investigates in this very process."""

    @contextmanager
    def again() -> Iterator[Place]:
        yield ProcessPlace()

    return Blame(tmp_path, again)


def record(path: str) -> dict[str, Any]:
    """The report at ``path``, as JSON."""
    return dict(json.loads(Path(path).with_name("report.json").read_text(encoding="utf-8")))


def test_a_crash_gives_a_command_that_needs_no_file_of_the_run(
    blame: Blame, made: list[tuple[Sequence[str], int | None, str]]
) -> None:
    path = blame.report(casualty(died("package")))
    assert made == [(("/env/bin/python", "-OO", "-c", "import demo"), -11, "package")]
    assert record(path)["problems"][-1] == (
        "the command's environment was removed with the host: install the wheel in a new one "
        "in `wheelfab container diagnosis --base debian-12`"
    )


def test_the_visit_itself_is_investigated_where_its_script_does_not_crash(
    blame: Blame, made: list[tuple[Sequence[str], int | None, str]]
) -> None:
    rare = [("package", "rare()", False)]
    path = blame.report(casualty(died("package"), stages=rare))
    assert [argv for argv, _, _ in made] == [("/env/bin/python", "-OO", "-c", "rare()"), ARGV]
    assert record(path)["problems"][-1] == "the plan /plan.json was removed with the host"


def test_a_fork_that_died_has_a_report(
    blame: Blame, made: list[tuple[Sequence[str], int | None, str]]
) -> None:
    path = blame.report(casualty(visit(forks=(0, -6, -11))))
    assert [(code, stage) for _, code, stage in made] == [(-6, "forked")]
    assert record(path)["stage"] == "forked"


def test_another_wheels_crash_is_investigated_and_seen_on_both(
    blame: Blame, made: list[tuple[Sequence[str], int | None, str]]
) -> None:
    one, other = casualty(died("package")), casualty(died("package"), cell="cpu-torch2.4")
    paths = [blame.report(each) for each in (one, other, other)]
    assert len(made) == 2
    assert len(set(paths)) == 1
    assert record(paths[0])["seen_on"] == {one.where: 1, other.where: 2}


def test_another_stack_is_another_crash(
    blame: Blame, made: list[tuple[Sequence[str], int | None, str]]
) -> None:
    for function in ("a", "b", "a"):
        stderr = f'Current thread 0x1:\n  File "x.py", line 1 in {function}\n'
        blame.report(casualty(died("package", stderr=stderr)))
    assert len(made) == 2


def test_what_is_not_investigated_any_more_is_said_to_be_alike(
    blame: Blame, made: list[tuple[Sequence[str], int | None, str]]
) -> None:
    for cell in ("a", "b", "c"):
        blame.report(casualty(died("package"), cell=cell))
    fourth = casualty(died("package"), cell="d")
    path = blame.report(fourth)
    assert len(made) == 3
    assert record(path)["seen_on"][f"{fourth.where} (alike, not investigated)"] == 1
    assert blame.report(casualty(died("torch"), cell="d")) == ""


def test_hosts_with_nvidias_library_have_it_under_the_tools_too() -> None:
    dockerfile = (Path(__file__).parents[2] / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for image in HostImage:
        assert f" AS {DIAGNOSIS[image]}\n" in dockerfile
    assert f"FROM driver-host AS {DIAGNOSIS[HostImage.DRIVER]}\n" in dockerfile
