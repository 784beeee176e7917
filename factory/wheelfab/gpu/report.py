"""The report of the loop on devices: ``build/gpu/<cell>.json``, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from wheelfab import console
from wheelfab.gpu.exercised import DeviceResult
from wheelfab.hosts.report import Count
from wheelfab.records import to_plain, write_json

SCHEMA = 1
COLUMNS = (
    "cell",
    "torch",
    "in",
    "fresh",
    "device",
    "image",
    "operation",
    "soak",
    "memory growth",
    "on a device",
)
NOTHING_ON_A_DEVICE = (
    "nothing ran on a device: the driver was the fake one, and the kernels ran on the CPU by the "
    "project's emulation"
)
_MOST_FAILURES = 10


class Ground(StrEnum):
    """What the loads ran in."""

    CONTAINER = "container"
    PROCESS = "process"
    EMULATED = "emulated"


class OnDevice(StrEnum):
    """What a result says of a device."""

    PASSED = "passed"
    FAILED = "failed"
    UNTESTED = "untested"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuResult:
    """One wheel with its torch. ``harness`` is ``None`` where nothing was run, as ``not_run`` says.

    ``status`` and ``reason`` are the extension's words about the hardware.
    """

    cell: str
    wheel: str
    sha256: str
    torch: str
    libraries: str
    harness: Ground | None
    status: str
    reason: str
    fresh: Count
    soak: int
    devices: tuple[DeviceResult, ...]
    failures: tuple[str, ...]
    seconds: float
    not_run: str

    @property
    def good(self) -> bool:
        """All that was asked for was done and right, be it under the emulation."""
        return not self.not_run and not self.failures and bool(self.devices)

    @property
    def on_device(self) -> OnDevice:
        """What this says of the wheel on a device: under the emulation, nothing."""
        if self.not_run or self.harness in (None, Ground.EMULATED):
            return OnDevice.UNTESTED
        return OnDevice.PASSED if self.good else OnDevice.FAILED


def report_path(root: Path, cell: str) -> Path:
    """Where the report of a cell lies in the project ``root``."""
    return root / "build" / "gpu" / f"{cell}.json"


def write_result(root: Path, result: GpuResult, machine: object) -> Path:
    """Write the report of one wheel."""
    path = report_path(root, result.cell)
    write_json(path, {"schema": SCHEMA, "machine": to_plain(machine), **plain(result)})
    return path


def plain(result: GpuResult) -> dict[str, Any]:
    """The result in JSON's own types, with what follows from it."""
    record: dict[str, Any] = to_plain(result)
    record["failures"] = record["failures"][:_MOST_FAILURES]
    for device, found in zip(record["devices"], result.devices, strict=True):
        device["growth"] = found.growth
    return record | {"good": result.good, "on_device": str(result.on_device)}


def show_results(results: Sequence[GpuResult]) -> None:
    """Show a table of ``results``, their failures, and whether anything ran on a device."""
    console.table(COLUMNS, [row for result in results for row in rows(result)])
    for result in results:
        for failure in result.failures[:_MOST_FAILURES]:
            console.error(f"{result.cell}: {failure}")
    if any(result.harness is Ground.EMULATED for result in results):
        console.result(NOTHING_ON_A_DEVICE)


def rows(result: GpuResult) -> list[tuple[str, ...]]:
    """A row a device, or one that says why there is none."""
    start = (result.cell, result.torch, str(result.harness or ""), result.fresh.text)
    end = str(result.on_device)
    if not result.devices:
        why = f"not run: {result.not_run}" if result.not_run else "failed before"
        return [(*start, why, "", "", "", "", end)]
    return [(*start, *_device(device, result.soak), end) for device in result.devices]


def _device(device: DeviceResult, asked: int) -> tuple[str, ...]:
    operation = "failed" if device.operation_seconds is None else "right"
    soak = f"{device.launches} of {asked}"
    if device.soak_seconds is not None:
        soak += f", {device.soak_seconds:.1f} s"
    growth = "" if device.growth is None else f"{device.growth} bytes"
    return (str(device.ordinal), device.image, operation, soak, growth)
