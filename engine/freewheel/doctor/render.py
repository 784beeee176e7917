"""The report for a person, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from freewheel.device import Device
from freewheel.device.judge import release_name
from freewheel.device.wheel import Wheel
from freewheel.doctor.imports import Imported
from freewheel.doctor.report import Report

_MARKS = {True: "passed", False: "FAILED", None: "not reached"}


def render(report: Report, *, as_json: bool) -> str:
    """All of ``report``."""
    if as_json:
        facts = asdict(report)
        facts["torch"]["fits"] = report.torch.fits
        facts["state"]["fallback"] = report.state.fallback
        return json.dumps(facts, indent=2) + "\n"
    rows = [(name, text) for name, text in _rows(report) if text]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}\n" for name, text in rows)


def _rows(report: Report) -> Iterator[tuple[str, str]]:
    found, wheel = report.state, report.wheel
    yield "freewheel", f"{report.version} ({report.cell or 'built without the factory'})"
    yield "device code", f"CUDA {wheel.cuda}: {' '.join(wheel.archs)}" if wheel.archs else "none"
    yield "needs driver", _floors(wheel)
    for fit in report.fits:
        yield (
            fit.what,
            f"built for {fit.built_for}; here {fit.found}"
            + ("" if fit.fits is None else ": fits" if fit.fits else ": DOES NOT FIT"),
        )
    yield from _imported(report.imported)
    yield "CPU", _cpu(report)
    for part in report.parts:
        if part.usable is False:
            yield part.name, f"cannot be used: {part.reason}"
    driver = "none" if found.library is None else found.library
    if found.driver_version:
        driver += f", for CUDA {release_name(found.driver_version)}"
    yield "driver", driver
    yield "kernel module", found.module_version or "none seen"
    yield "nvidia-smi", report.nvidia_smi or "none on PATH"
    for item in found.devices:
        yield f"device {item.ordinal}", _device(item)
    for layer in found.layers:
        code = "" if not layer.code else f" ({layer.code} {layer.name or ''})".replace(" )", ")")
        mark = "" if layer.layer == "files" else f"{_MARKS[layer.passed]}: "  # files veto nothing
        yield f"asked: {layer.layer}", f"{mark}{layer.reason}{code}"
    yield "state", f"{found.status} (asked by: {found.asked}, {found.seconds:.3f} s)"
    for note in report.notes:
        yield "note", note
    yield "verdict", report.verdict
    yield "next step", report.next_step


def _imported(imported: Imported | None) -> Iterator[tuple[str, str]]:
    if imported is None:
        return
    if imported.passed:
        yield "import torch", f"passed, {imported.seconds:.1f} s"
    else:
        yield "import torch", ("FAILED: " if imported.passed is False else "") + imported.reason
    if imported.stdcxx:
        by = f", brought by {imported.first_user}" if imported.first_user else ""
        yield "libstdc++", f"{imported.stdcxx} ({imported.glibcxx or 'version unknown'}){by}"


def _cpu(report: Report) -> str:
    cpu = report.cpu
    if not cpu.built:
        return f"unknown: {cpu.reason}"
    chosen = cpu.chosen or f"none can be used: {cpu.reason}"
    return f"{chosen} (in the wheel: {' '.join(cpu.built)}; runs here: {' '.join(cpu.usable)})"


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
