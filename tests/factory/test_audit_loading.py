"""What is said of a library that was to be loaded, by how the process that did it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factory.auditmaker import library
from tests.factory.wheelmaker import make_wheel
from wheelfab import run
from wheelfab.audit import loading
from wheelfab.audit.facts import read_facts
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.loading import Loaded, load_libraries
from wheelfab.elf import parse_elf

Answers = Callable[..., None]
NAME = "freewheel/_C.abi3.so"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """A function that says how every process ends, and what it calls of the driver meanwhile."""

    def says(returncode: int | None, stdout: str, calls: str = "", stderr: str = "") -> None:
        def ended(argv: tuple[str, ...], *, env: dict[str, str], **_: object) -> run.Completed:
            if calls:
                Path(env["WHEELFAB_COUNT_LOG"]).write_text(calls)
            return run.Completed(
                argv=argv, returncode=returncode, stdout=stdout, stderr=stderr, seconds=0.0
            )

        monkeypatch.setattr(run, "run", ended)

    return says


def loaded(folder: Path, needed: tuple[str, ...] = ("libtorch.so",)) -> Loaded:
    """What is said of a library with these needs."""
    elf = parse_elf(library(needed=needed), where="x")
    facts = LibraryFacts(name=NAME, size=1, sha256="", executable=False, elf=elf)
    return loading._load(facts, Path("python"), folder, ())


@pytest.mark.parametrize(
    ("returncode", "how"), [(-11, "SIGSEGV"), (None, "timed out"), (1, "exit 1")]
)
def test_torchs_own_death_is_not_the_librarys(
    returncode: int | None, how: str, answers: Answers, tmp_path: Path
) -> None:
    answers(returncode, "", calls="cuInit\n")
    refused = f"importing torch ends so: {how}"
    assert loaded(tmp_path) == Loaded(name=NAME, calls={}, refused=refused)
    other = f"starting Python ends so: {how}"
    assert loaded(tmp_path, ()) == Loaded(name=NAME, calls={}, refused=other)


def test_a_library_that_ends_the_process_does_so_after_torch(
    answers: Answers, tmp_path: Path
) -> None:
    answers(-6, "before 2\n", calls="cuInit\ncuInit\ncuDeviceGet\n")
    assert loaded(tmp_path) == Loaded(name=NAME, calls={"cuDeviceGet": 1}, died="SIGABRT")


def test_a_library_that_is_refused_or_loads(answers: Answers, tmp_path: Path) -> None:
    answers(0, "before 0\nafter undefined symbol: x\n")
    assert loaded(tmp_path) == Loaded(name=NAME, calls={}, refused="undefined symbol: x")
    answers(0, "before 1\nafter \n", calls="cuInit\n")
    assert loaded(tmp_path) == Loaded(name=NAME, calls={})


def test_nothing_is_loaded_without_a_fence(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "build_fake", lambda _: "")
    facts = read_facts(make_wheel(tmp_path, files={NAME: library()}), python=Path("python"))
    answers(1, "", stderr="unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(loading, "_FENCE", ("true",))
    reason = "unshare: unshare failed: Operation not permitted"
    assert load_libraries(facts) == ((), f"nothing is loaded without a fence: {reason}")
    monkeypatch.setattr(loading, "_FENCE", ("nosuch-unshare",))
    reason = "there is no nosuch-unshare"
    assert load_libraries(facts) == ((), f"nothing is loaded without a fence: {reason}")
