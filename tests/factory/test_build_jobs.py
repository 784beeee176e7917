"""B09: a compile that ran out of memory is tried again at half the jobs, and only such a one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wheelfab.errors import BuildError, FactoryError, InfrastructureError
from wheelfab.maker import Folders, Maker
from wheelfab.run import Completed
from wheelfab.store import Store

from .test_plan import plan_of, root

__all__ = ["root"]  # the fixture: a small project

KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


class Compiler:
    """Stands in for every process: installs leave a file, compiles end as told."""

    def __init__(self, *endings: str) -> None:
        self.endings = list(endings)
        self.jobs: list[int] = []

    def run(self, argv: Sequence[str], *, log: Path, **_: Any) -> Completed:
        """Answer one step of CMake."""
        said = ""
        if "--install" in argv:
            (Path(argv[-1]) / "made").touch()
        elif "--build" in argv:
            self.jobs.append(int(argv[-1]))
            said = self.endings.pop(0) if self.endings else ""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(said + "\n")
        code = 1 if said else 0
        return Completed(argv=tuple(argv), returncode=code, stdout="", stderr=said, seconds=0.0)


def make(root: Path, compiler: Compiler, jobs: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the part that every cell shares, with ``jobs`` jobs; its stored result."""
    monkeypatch.setattr("wheelfab.maker.run.run", compiler.run)
    monkeypatch.setattr("wheelfab.maker.machine.jobs", lambda: jobs)
    planned, folders = plan_of(root), Folders(root=root)
    folders.work.mkdir(parents=True)
    maker = Maker(planned, folders, Store(root / "store"), Store(folders.build / "store"))
    return maker.make(planned.action("cpu"), {})


def test_out_of_memory_is_tried_again_at_half_the_jobs(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = Compiler(KILLED)
    assert (make(root, compiler, 6, monkeypatch) / "made").exists()
    assert compiler.jobs == [6, 3]
    assert "warning: cpu: out of memory with 6 jobs; again with 3" in capsys.readouterr().err


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
