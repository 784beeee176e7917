"""What others know of a wheel: reports of hosts and devices, the atlas, the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from wheelfab import facts
from wheelfab.compat.record import AuditEntry, HostsEntry
from wheelfab.gpu.report import Ground, OnDevice
from wheelfab.gpu.report import report_path as gpu_report_path
from wheelfab.hosts.report import Verdict as HostVerdict
from wheelfab.hosts.report import read_report
from wheelfab.records import read_json
from wheelfab.wheel import Wheel

if TYPE_CHECKING:
    from wheelfab.variant import Cell

_PASSES = "passes"  # what a load with torch did on a host, in the words of its report


@dataclass(frozen=True, kw_only=True, slots=True)
class Spoken:
    """What the symbol atlas says of a wheel on a torch release; ``loads`` is ``None``: unknown.

    ``build`` is the build of torch that the entry is of (``2.13.0+cu130``).
    """

    torch: Version
    build: str
    loads: bool | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Who is asked about each wheel beside the records; nobody by default."""

    atlas: Callable[[Wheel], Iterable[Spoken]] = lambda _: ()
    audit: Callable[[Cell, Wheel], AuditEntry | None] = lambda *_: None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSeen:
    """A host on which exactly this wheel was loaded beside torch; ``passed``: as expected."""

    host: str
    torch: Version
    glibc: str | None
    passed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """All that the hosts' report says of a wheel: the loads beside torch, and the sum."""

    loads: tuple[HostSeen, ...]
    entry: HostsEntry | None


def read_hosts(root: Path, cell: str, wheel: Wheel) -> Hosts:
    """What ``build/hosts/report.json`` says of exactly this wheel."""
    report = read_report(root) or {"results": ()}
    results = [
        item
        for item in report["results"]
        if (item.get("cell"), item.get("sha256")) == (cell, wheel.sha256)
    ]
    if not results:
        return Hosts(loads=(), entry=None)
    entry = HostsEntry(
        passed=len(_named(results, HostVerdict.PASSED)),
        failed=_named(results, HostVerdict.FAILED),
        not_run=_named(results, HostVerdict.NOT_RUN),
    )
    return Hosts(loads=tuple(_loads(results)), entry=entry)


def images_seen(root: Path, cell: str, wheel: Wheel) -> frozenset[str]:
    """The images of exactly this wheel by which an operation ran right on a real device."""
    try:
        report = read_json(gpu_report_path(root, cell))
        known = report["cell"] == cell and report["sha256"] == wheel.sha256
        real = report["harness"] != Ground.EMULATED and report["on_device"] == OnDevice.PASSED
        return frozenset(str(item["image"]) for item in report["devices"] if known and real)
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _named(results: Sequence[Mapping[str, Any]], verdict: HostVerdict) -> tuple[str, ...]:
    return tuple(str(item["host"]) for item in results if item.get("verdict") == verdict)


def _loads(results: Iterable[Mapping[str, Any]]) -> Iterable[HostSeen]:
    """Loads that torch took part in; where an error was expected, nothing is said of torch."""
    for item in results:
        failed = item.get("verdict") == HostVerdict.FAILED
        if not failed and item.get("with_torch") != _PASSES:
            continue
        try:
            torch = Version(str(item.get("torch")))
        except InvalidVersion:
            continue
        glibc = facts.base_glibc(str(item.get("base")))
        yield HostSeen(
            host=str(item["host"]),
            torch=torch,
            glibc=str(glibc) if glibc else None,
            passed=not failed,
        )
