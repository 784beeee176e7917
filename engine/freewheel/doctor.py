"""What ``python -m freewheel doctor`` finds. Standard library only; torch is never imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from freewheel._native import build, satisfies, version
from freewheel.device import Device, DeviceState, Fallback, state
from freewheel.device.judge import release_name
from freewheel.device.wheel import Wheel, wheel_of
from freewheel.errors import LoadError

READY, CPU_ONLY, BROKEN = 0, 1, 2  # exit codes
_SMI_LIMIT = 5.0  # seconds
_SMI_BYTES = 2000


@dataclass(frozen=True)
class Torch:
    """The torch that is installed, by its metadata, against the one that the wheel is for."""

    found: str | None
    wanted: str | None
    built_with: str | None

    @property
    def fits(self) -> bool:
        """Whether the wheel's binding loads beside it."""
        if self.found is None or self.wanted is None:
            return False
        try:
            return satisfies(self.found, self.wanted)
        except ValueError:
            return False


@dataclass(frozen=True)
class Report:
    """Everything found, the verdict in one sentence, and the next step."""

    version: str
    cell: str | None
    wheel: Wheel
    torch: Torch
    state: DeviceState
    nvidia_smi: str | None  # what it says; decides nothing, None where there is none
    exit_code: int
    verdict: str
    next_step: str


def examine(*, deep: bool = False) -> Report:
    """Look at the wheel, torch and the driver; never raises because of what it finds."""
    try:
        record: Mapping[str, Any] | None = build()
        flaw, mend = "", ""
    except LoadError as error:
        record, flaw, mend = None, str(error.what), error.next_step
    wanted = record.get("torch", {}) if record else {}
    torch = Torch(
        found=_installed("torch"),
        wanted=wanted.get("requirement"),
        built_with=wanted.get("headers"),
    )
    found = state(deep=deep)
    if not flaw and not torch.fits:
        is_ = f"torch {torch.found} is installed" if torch.found else "torch is not installed"
        flaw = f"the wheel is for torch{torch.wanted}, but {is_}"
        mend = f'pip install "torch{torch.wanted}", or a freewheel wheel for your torch'
    exit_code, verdict, next_step = _verdict(found, flaw, mend)
    return Report(
        version=version(),
        cell=record.get("cell") if record else None,
        wheel=wheel_of(record),
        torch=torch,
        state=found,
        nvidia_smi=_nvidia_smi(),
        exit_code=exit_code,
        verdict=verdict,
        next_step=next_step,
    )


def _verdict(found: DeviceState, flaw: str, mend: str) -> tuple[int, str, str]:
    if flaw:
        return BROKEN, f"broken: {flaw}", mend
    if found.is_ready():
        return READY, f"ready: {found.reason}", found.next_step
    if found.fallback is Fallback.FAIL:
        return BROKEN, f"CUDA is broken, the CPU works: {found.reason}", found.next_step
    return CPU_ONLY, f"usable on the CPU: {found.reason}", found.next_step


def _nvidia_smi() -> str | None:
    """What ``nvidia-smi -L`` says and how it ends: it exits with 0 on machines without a device."""
    import shutil
    import subprocess

    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    try:
        started = subprocess.Popen(
            [path, "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        return f"cannot be started: {error}"
    try:
        said, _ = started.communicate(timeout=_SMI_LIMIT)
    except subprocess.TimeoutExpired:
        started.kill()  # and not waited for: it may be stuck in the kernel
        return f"did not answer within {_SMI_LIMIT:.0f} s"
    except ValueError as error:  # not text
        return f"cannot be read: {error}"
    lines = [*said[:_SMI_BYTES].split("\n"), f"(exit {started.returncode})"]
    return " ".join(line for line in lines if line)


def _installed(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def render(report: Report, *, as_json: bool) -> str:
    """The report for a person, or as one JSON object."""
    if as_json:
        facts = asdict(report)
        facts["torch"]["fits"] = report.torch.fits
        facts["state"]["fallback"] = report.state.fallback
        return json.dumps(facts, indent=2) + "\n"
    rows = list(_rows(report))
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}\n" for name, text in rows)


def _rows(report: Report) -> list[tuple[str, str]]:
    found, wheel, torch = report.state, report.wheel, report.torch
    fits = "fits" if torch.fits else "does not fit"
    built_for = f"{torch.wanted or 'unknown'} (with {torch.built_with or 'unknown'})"
    driver = "none" if found.library is None else found.library
    if found.driver_version:
        driver += f", for CUDA {release_name(found.driver_version)}"
    rows = [
        ("freewheel", f"{report.version} ({report.cell or 'built without the factory'})"),
        ("device code", f"CUDA {wheel.cuda}: {' '.join(wheel.archs)}" if wheel.archs else "none"),
        ("needs driver", _floors(wheel)),
        ("torch", f"{torch.found or 'not installed'}; built for {built_for}: {fits}"),
        ("driver", driver),
        ("kernel module", found.module_version or "none seen"),
        ("nvidia-smi", report.nvidia_smi or "none on PATH"),
        *((f"device {item.ordinal}", _device(item)) for item in found.devices),
        ("state", f"{found.status} (asked by: {found.asked}, {found.seconds:.3f} s)"),
        *(("note", note) for note in found.notes),
        ("verdict", report.verdict),
    ]
    return [*rows, ("next step", report.next_step)] if report.next_step else rows


def _floors(wheel: Wheel) -> str:
    if not wheel.cubin_floor:
        return "none" if not wheel.archs else "unknown"
    cubin, ptx = release_name(wheel.cubin_floor), release_name(wheel.ptx_floor)
    return (
        f"for CUDA {cubin} ({wheel.cubin_release or 'release unknown'}); "
        f"for its PTX {ptx} ({wheel.ptx_release or 'release unknown'})"
    )


def _device(device: Device) -> str:
    capability = ".".join(map(str, device.capability)) if device.capability else "unknown"
    memory = f"{device.total_memory / 2**30:.1f} GiB" if device.total_memory else "unknown memory"
    runs = f"runs {device.image}" if device.image else "no code for it"
    note = f"; {device.note}" if device.note else ""
    return f"{device.name}, capability {capability}, {memory}, {device.uuid}: {runs}{note}"
