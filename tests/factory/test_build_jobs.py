"""B09: what ran out of memory is tried again at half the jobs, and only that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from wheelfab.errors import BuildError, FactoryError, InfrastructureError
from wheelfab.maker import Folders, Maker
from wheelfab.plan import ActionKind
from wheelfab.run import Completed
from wheelfab.slots import Slots
from wheelfab.store import Store

from .test_plan import plan_of, root
from .test_slots import free

__all__ = ["root"]  # the fixture: a small project

KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


class Compiler:
    """Stands in for every process: installs leave a file, compiles end as told.

    An ending is what it said, or the negative number of the signal that ended the step.
    """

    def __init__(self, *endings: str | int) -> None:
        self.endings = list(endings)
        self.jobs: list[int] = []
        self.slots: Slots | None = None

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path, **_: Any) -> Completed:
        """Answer one step of CMake or the device compiler; ``jobs`` are those it might use."""
        ending: str | int = ""
        if "--install" in argv:
            (Path(argv[-1]) / "made").touch()
        elif "--build" in argv or "--cuda" in argv:
            assert self.slots is not None
            assert env["MAKEFLAGS"] == self.slots.environment["MAKEFLAGS"]
            self.jobs.append(1 + free(self.slots))
            ending = self.endings.pop(0) if self.endings else ""
            if "--cuda" in argv and ending == "":
                Path(argv[argv.index("--out") + 1]).touch()
        said = ending if isinstance(ending, str) else ""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(said + "\n")
        code = ending if isinstance(ending, int) else int(bool(said))
        return Completed(argv=tuple(argv), returncode=code, stdout="", stderr=said, seconds=0.0)


def make(
    root: Path,
    compiler: Compiler,
    jobs: int,
    monkeypatch: pytest.MonkeyPatch,
    kind: ActionKind = ActionKind.PART,
) -> Path:
    """Make the part that every cell shares, or device code, with ``jobs`` jobs; what is stored."""
    monkeypatch.setattr("wheelfab.maker.run.run", compiler.run)
    monkeypatch.setattr("wheelfab.maker.fetch_toolchain", lambda *_: root)
    planned, folders = plan_of(root), Folders(root=root)
    folders.work.mkdir(parents=True)
    stores = Store(root / "store"), Store(folders.build / "store")
    action = next(action for action in planned.actions if action.kind is kind)
    with Slots(jobs) as slots:
        compiler.slots = slots
        return Maker(planned, folders, *stores, slots).make(action, {})


def test_out_of_memory_is_tried_again_at_half_the_jobs(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = Compiler(KILLED)
    assert (make(root, compiler, 6, monkeypatch) / "made").exists()
    assert compiler.jobs == [6, 3]
    assert "warning: cpu: out of memory with 6 jobs; again with 3" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [ActionKind.PART, ActionKind.DEVICE])
def test_a_step_that_was_killed_itself_is_tried_again_too(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: ActionKind,
) -> None:
    compiler = Compiler(-9)
    assert [*make(root, compiler, 6, monkeypatch, kind).iterdir()]
    assert compiler.jobs == [6, 3]
    assert "out of memory with 6 jobs; again with 3" in capsys.readouterr().err


def test_a_second_time_it_is_an_error_that_says_memory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler(KILLED, KILLED, KILLED)
    with pytest.raises(
        InfrastructureError, match="out of memory; free memory, or build with fewer"
    ):
        make(root, compiler, 6, monkeypatch)
    assert compiler.jobs == [6, 3]


@pytest.mark.parametrize(
    ("jobs", "said", "kind"),
    [
        (1, KILLED, InfrastructureError),
        (6, "a.cpp:1: error: no", BuildError),
        (6, "x: No space left on device", InfrastructureError),
    ],
)
def test_what_half_the_jobs_cannot_help_is_not_tried_again(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int,
    said: str,
    kind: type[FactoryError],
) -> None:
    compiler = Compiler(said)
    with pytest.raises(kind):
        make(root, compiler, jobs, monkeypatch)
    assert compiler.jobs == [jobs]
