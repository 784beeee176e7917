"""What became of each cell that was built again: a record, a table, an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wheelfab import console
from wheelfab.errors import FactoryError
from wheelfab.locked import LOCK
from wheelfab.records import write_json
from wheelfab.reproduce.causes import Finding

FILE = "reproduce.json"
_SCHEMA = 1


class ReproduceError(FactoryError):
    """A wheel came out with other bytes, or was not built."""

    exit_code = 20


class Outcome(StrEnum):
    """How one build's wheel compares with the first one's."""

    SAME = "same"
    DIFFERS = "differs"
    FAILED = "failed"
    NOT_COMPARED = "not compared"


_BAD = (Outcome.DIFFERS, Outcome.FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One of the builds of a cell, against the first. ``seconds`` are those of all cells.

    ``diffoscope`` is its report, or the reason why there is none.
    """

    name: str
    outcome: Outcome
    sha256: str | None
    reason: str = ""
    seconds: float = 0.0
    host_compiles: int = 0
    device_compiles: int = 0
    findings: tuple[Finding, ...] = ()
    diffoscope: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All builds of one cell. ``compiler_locked``: whether the lock promises its bytes."""

    cell: str
    wheel: str
    compiler: str
    compiler_locked: bool
    different: Mapping[str, str]
    same: Mapping[str, str]
    builds: tuple[Build, ...]

    @property
    def passed(self) -> bool:
        """Whether the second build agrees with the first, nothing differs, and bytes are promised.

        They are for a compiler of the lock, and for a given wheel that came out the same.
        """
        return not self.failure

    @property
    def failure(self) -> str:
        """Why the cell does not count as reproduced; empty where it does."""
        bad = [item.name for item in self.builds if item.outcome in _BAD]
        if bad:
            return f"{', '.join(bad)} not the same"
        same = [item.name for item in self.builds if item.outcome is Outcome.SAME]
        if len(same) < 2:  # the first is one
            return "nothing was compared"
        if not self.compiler_locked and "given" not in same:
            return f"built alike, but by {self.compiler}, which is not in {LOCK}"
        return ""


def write_report(folder: Path, report: Report) -> None:
    """Write the report of a cell into its folder."""
    write_json(folder / report.cell / FILE, {"schema": _SCHEMA, "report": report})


def show_reports(reports: Sequence[Report]) -> None:
    """One row a build, and what was varied."""
    rows = [
        (
            report.cell,
            build.name,
            str(build.outcome),
            (build.sha256 or "")[:16],
            f"{build.host_compiles} + {build.device_compiles}",
            _why(build),
        )
        for report in reports
        for build in report.builds
    ]
    for report in reports:
        if not report.compiler_locked:
            console.warn(f"{report.cell}: by {report.compiler}, which is not in {LOCK}")
    columns = ("cell", "build", "bytes", "SHA-256", "compiles, host + device", "cause")
    console.table(columns, rows)
    if reports:
        words = ", ".join(reports[0].different)
        console.note(f"different around the second build: {words}")
        for what, reason in reports[0].same.items():
            console.note(f"not varied: {what} ({reason})")


def _why(build: Build) -> str:
    causes = ", ".join(f"{item.cause} ({item.where})" for item in build.findings[:3])
    return "; ".join(filter(None, (build.reason, causes)))
