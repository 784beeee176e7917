"""The report of the hosts: a result for each host and wheel, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from wheelfab.host import Host
from wheelfab.hosts.judge import expected_of
from wheelfab.records import digest, read_json, to_plain, write_json
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel

SCHEMA = 2
COLUMNS = (
    "host",
    "cell",
    "torch",
    "in",
    "without torch",
    "with torch",
    "forked",
    "state",
    "torch alone",
)
_MOST_FAILURES = 10


class Verdict(StrEnum):
    """How a wheel did on a host."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class Beside(StrEnum):
    """What became of the load with torch."""

    PASSED = "passed"
    ERROR = "clear error"  # the one that is expected there
    EXCUSED = "torch cannot be imported"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run over hosts so far: its wall time, how many hosts at a time, the pairs it has done."""

    seconds: float
    jobs: int
    pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """How many loads of a kind were made and how many were as expected."""

    made: int
    passed: int

    @property
    def text(self) -> str:
        """``20 of 20``; nothing where none was made."""
        return f"{self.passed} of {self.made}" if self.made else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """One wheel on one host, which is the machine of ``host_digest``.

    ``fresh`` are loads without torch (with it under ``deep``), ``with_torch`` is what the load with
    torch and an operation did in words, ``beside`` in one, ``emulated`` whether operations ran on
    the devices there, ``control`` what torch alone did, ``doctor`` how the project's own
    report on the machine ended, where it was asked for one. ``status``, ``reason`` and
    ``next_step`` are the extension's words. ``not_run`` says why nothing was tried.
    """

    host: str
    host_digest: str
    cell: str
    wheel: str
    sha256: str
    torch: str
    libraries: str
    harness: str
    base: str
    deep: bool
    expected: str
    fresh: Count
    with_torch: str
    beside: Beside
    emulated: bool
    forked: Count
    control: str
    doctor: str
    status: str
    reason: str
    next_step: str
    seconds: float
    failures: tuple[str, ...]
    crashes: tuple[str, ...]
    not_run: str

    @property
    def verdict(self) -> Verdict:
        """Failed when anything was not as expected."""
        if self.not_run:
            return Verdict.NOT_RUN
        return Verdict.FAILED if self.failures else Verdict.PASSED


def not_run(host: Host, cell: Cell, wheel: Wheel, reason: str, *, failure: str = "") -> HostResult:
    """The result of a wheel that was not tried on ``host``, or of a host that failed to come up."""
    none = Count(made=0, passed=0)
    return HostResult(
        **dict.fromkeys(("torch", "libraries", "harness", "base", "with_torch", "control"), ""),
        **dict.fromkeys(("doctor", "status", "reason", "next_step"), ""),
        host=host.name,
        host_digest=host_digest(host),
        cell=cell.id,
        wheel=wheel.file,
        sha256=wheel.sha256,
        deep=False,
        beside=Beside.NOT_RUN,
        emulated=False,
        expected=expected_of(host, cell).text,
        fresh=none,
        forked=none,
        seconds=0.0,
        failures=(failure,) if failure else (),
        crashes=(),
        not_run=reason,
    )


def host_digest(host: Host) -> str:
    """The SHA-256 of what a host is made of and must answer: another one is another machine."""
    return digest(to_plain(host))


def report_path(root: Path) -> Path:
    """Where the report lies in the project ``root``."""
    return root / "build" / "hosts" / "report.json"


def write_report(
    root: Path, results: Sequence[HostResult], hosts: Sequence[Host], machine: object, run: Run
) -> Path:
    """Write ``results``; those of the same wheel on other hosts stay, if the hosts are the same."""
    path = report_path(root)
    now = {(result.host, result.cell): _record(result) for result in results}
    wheels = {result.cell: result.sha256 for result in results}
    digests = {host.name: host_digest(host) for host in hosts}
    old_report = read_report(root)
    kept = {
        (old["host"], old["cell"]): old
        for old in (old_report["results"] if old_report else ())
        if wheels.get(old["cell"], old["sha256"]) == old["sha256"]
        and digests.get(old["host"]) == old["host_digest"]
    }
    order = {host.name: at for at, host in enumerate(hosts)}
    merged = [item for key, item in {**kept, **now}.items() if key[0] in order]
    merged.sort(key=lambda item: (order[item["host"]], item["cell"]))
    record = {"schema": SCHEMA, "machine": machine, "run": run, "results": merged}
    write_json(path, to_plain(record))
    return path


def read_report(root: Path) -> dict[str, Any] | None:
    """The last report, ``None`` when there is none that can be read."""
    try:
        record = read_json(report_path(root))
        return dict(record) if record["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def rows(results: Sequence[HostResult]) -> list[tuple[str, ...]]:
    """The rows of ``results`` under ``COLUMNS``."""
    return [_row(result) for result in results]


def _row(result: HostResult) -> tuple[str, ...]:
    if result.not_run:
        blank = ("",) * (len(COLUMNS) - 5)
        return (result.host, result.cell, result.torch, "", f"not run: {result.not_run}", *blank)
    failed = f"failed: {result.failures[0]}" if result.failures else result.with_torch
    return (
        result.host,
        result.cell,
        result.torch,
        result.harness,
        result.fresh.text,
        failed,
        result.forked.text,
        result.status,
        result.control,
    )


def _record(result: HostResult) -> dict[str, Any]:
    record: dict[str, Any] = to_plain(result)
    record["failures"] = record["failures"][:_MOST_FAILURES]
    return record | {"verdict": str(result.verdict)}
