"""The report of a cell's loops: one run for each torch release, as JSON and as a table."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.version import Version

from wheelfab import machine
from wheelfab.loops.judge import Failure, Load
from wheelfab.loops.statistics import Spread, failure_bound, spread
from wheelfab.records import read_json, to_plain, write_json

SCHEMA = 1
_DETAILS = 50  # failures of a series kept with their stderr and stack
COLUMNS = (
    *("cell", "torch", "python", "NVIDIA libraries", "fresh", "mean ± sd", "p50", "p99"),
    *("failure rate below (95 %)", "forked"),
)


class Harness(StrEnum):
    """What the loads run in."""

    PROCESSES = "processes"


class Libraries(StrEnum):
    """Where the NVIDIA libraries that torch needs came from."""

    NONE = "none needed"
    STUBS = "stubs"
    FULL = "full"


class SkipKind(StrEnum):
    """Why a release was not looped: not asked for, or not possible here."""

    NOT_ASKED = "not asked"
    NOT_POSSIBLE = "not possible"


_SKIPPED = {SkipKind.NOT_ASKED: "not run", SkipKind.NOT_POSSIBLE: "skipped"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Loads of one kind. Times are of the loads that passed, in seconds.

    ``failure_bound`` is the upper bound of the failure rate at 95 %. It holds for fresh loads,
    which are independent of each other; forked ones share what their parent did, so theirs stands
    apart.
    """

    count: int
    passed: int
    total: Spread | None
    stages: Mapping[str, Spread]
    failure_bound: float
    failures: tuple[Failure, ...]

    @property
    def all_passed(self) -> bool:
        """Not one load failed."""
        return self.passed == self.count


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Where the loop ran. ``memory`` in bytes."""

    system: str
    processor: str
    cores: int
    memory: int
    libc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The loops of a wheel on one torch release.

    ``torch`` is the release asked for, ``found`` what the loads imported, ``source`` where it came
    from, ``jobs`` how many loads ran at a time. ``forked`` is ``None``
    where there were none, with the reason in ``not_forked``. ``crashes`` are the reports of those
    that a signal or the time limit ended.
    """

    torch: Version
    found: str | None
    source: str
    libraries: Libraries
    python: str
    wheel: str
    sha256: str
    harness: Harness
    jobs: int
    machine: Machine
    fresh: Series
    forked: Series | None
    not_forked: str = ""
    crashes: tuple[Path, ...] = ()

    @property
    def passed(self) -> bool:
        """Every load passed."""
        return self.fresh.all_passed and (self.forked is None or self.forked.all_passed)

    @property
    def text(self) -> str:
        """In short: ``100 of 100 fresh, 1000 of 1000 forked``."""
        fresh = f"{self.fresh.passed} of {self.fresh.count} fresh"
        if self.forked is None:
            return fresh
        return f"{fresh}, {self.forked.passed} of {self.forked.count} forked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A torch release that was not looped, and why."""

    torch: Version
    kind: SkipKind
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopReport:
    """All loops of one cell's wheel that were run just now."""

    cell: str
    wheel: str
    sha256: str
    runs: tuple[Run, ...]
    skipped: tuple[Skipped, ...]

    @property
    def passed(self) -> bool:
        """Every load passed, and none was impossible: what was not run has not passed."""
        possible = all(skip.kind is SkipKind.NOT_ASKED for skip in self.skipped)
        return bool(self.runs) and possible and all(run.passed for run in self.runs)

    @property
    def asked(self) -> bool:
        """Whether a release was asked for that this cell takes."""
        return bool(self.runs) or any(skip.kind is not SkipKind.NOT_ASKED for skip in self.skipped)


def series(loads: Sequence[Load]) -> Series:
    """Sum up ``loads``, at least one."""
    good = [load for load in loads if load.passed]
    names = good[0].stages if good else ()
    times = {name: spread([load.stages[name] for load in good]) for name in names}
    return Series(
        count=len(loads),
        passed=len(good),
        total=spread([load.total for load in good]),
        stages={name: value for name, value in times.items() if value is not None},
        failure_bound=failure_bound(len(loads) - len(good), len(loads)),
        failures=tuple(load.failure for load in loads if load.failure is not None)[:_DETAILS],
    )


def this_machine() -> Machine:
    """The facts of this machine that a time depends on."""
    libc = " ".join(part for part in platform.libc_ver() if part)
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(Path("/proc/cpuinfo")),
        cores=machine.cores(),
        memory=machine.memory(),
        libc=libc or "unknown",
    )


def report_path(root: Path, cell: str) -> Path:
    """Where the report of a cell lies in the project ``root``."""
    return root / "build" / "loops" / f"{cell}.json"


def write_report(root: Path, report: LoopReport) -> Path:
    """Write ``report``; runs of the same wheel on other torch releases stay in the file."""
    path = report_path(root, report.cell)
    now = {str(run.torch): _run_record(run) for run in report.runs}
    kept = {torch: run for torch, run in _runs_of(path, report.sha256).items() if torch not in now}
    runs = sorted({**kept, **now}.items(), key=lambda item: Version(item[0]))
    record: dict[str, Any] = to_plain(replace(report, runs=()))
    record |= {"schema": SCHEMA, "runs": [run for _, run in runs]}
    write_json(path, record)
    return path


def rows(report: LoopReport) -> tuple[tuple[str, ...], ...]:
    """The rows of ``report`` under ``COLUMNS``: what was not asked for only where nothing was."""
    done = [(report.cell, str(run.torch), *_cells(run)) for run in report.runs]
    blank = ("",) * (len(COLUMNS) - 5)
    left = [
        (report.cell, str(skip.torch), "", "", f"{_SKIPPED[skip.kind]}: {skip.reason}", *blank)
        for skip in report.skipped
        if skip.kind is not SkipKind.NOT_ASKED or not report.asked
    ]
    return (*done, *left)


def _cells(run: Run) -> tuple[str, ...]:
    total = run.fresh.total
    times = ("", "", "")
    if total is not None:
        times = (f"{total.mean:.2f} ± {total.sd:.2f} s", f"{total.p50:.2f} s", f"{total.p99:.2f} s")
    forked = run.not_forked
    if run.forked is not None:
        forked = f"{run.forked.passed} of {run.forked.count}"
        if run.forked.total is not None:
            forked += f", {run.forked.total.mean * 1e3:.0f} ms"
    return (
        run.python,
        run.libraries,
        f"{run.fresh.passed} of {run.fresh.count}",
        *times,
        f"{run.fresh.failure_bound:.2%}",
        forked,
    )


def _run_record(run: Run) -> dict[str, Any]:
    record: dict[str, Any] = to_plain(run)
    return record | {"passed": run.passed, "text": run.text}


def _runs_of(path: Path, sha256: str) -> dict[str, dict[str, Any]]:
    """The runs in an older report of the same wheel; none when it cannot be read."""
    try:
        record = read_json(path)
        if record["schema"] != SCHEMA or record["sha256"] != sha256:
            return {}
        return {str(Version(run["torch"])): run for run in record["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _processor(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
