"""Looks at everything at once, within half a minute, and comes to a verdict."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any

from freewheel._native import build, satisfies
from freewheel.capability import Capabilities, Cpu, Operation, Part, capabilities
from freewheel.device import DeviceState, Fallback, state
from freewheel.device.shadows import shadows
from freewheel.device.wheel import Wheel
from freewheel.doctor.imports import Imported, import_torch
from freewheel.doctor.smi import Smi, ask_smi
from freewheel.errors import LoadError

READY, CPU_ONLY, BROKEN = 0, 1, 2  # exit codes
_LIMIT = 26.0  # seconds for everything
_SMI_LIMIT = 5.0
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(?:['\"]([\w.]+)['\"]|None)", re.MULTILINE)


@dataclass(frozen=True)
class Torch:
    """The torch that is installed, by its files, against the one that the wheel is for.

    ``cuda`` is the CUDA release of that torch, ``""`` for a CPU build, ``None`` where unknown.
    """

    found: str | None
    wanted: str | None
    built_with: str | None
    cuda: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the wheel's binding is for it."""
        if self.found is None or self.wanted is None:
            return False
        try:
            return satisfies(self.found, self.wanted)
        except ValueError:
            return False


@dataclass(frozen=True)
class Fit:
    """A line of the table: what the wheel was built for, what is here, and whether they fit."""

    what: str
    built_for: str
    found: str
    fits: bool | None


@dataclass(frozen=True)
class Report:
    """Everything found, the verdict in one sentence, and the next step."""

    version: str
    cell: str | None
    wheel: Wheel
    torch: Torch
    fits: tuple[Fit, ...]
    imported: Imported | None  # None: not tried
    cpu: Cpu
    parts: tuple[Part, ...]
    operations: tuple[Operation, ...]
    state: DeviceState
    nvidia_smi: str | None  # what it says; decides nothing, None where there is none
    notes: tuple[str, ...]
    exit_code: int
    verdict: str
    next_step: str


def examine(*, deep: bool = False, with_torch: bool = True) -> Report:
    """Look at the wheel, torch and the driver; never raises because of what it finds.

    ``with_torch`` also imports torch, in a child.
    """
    deadline = time.monotonic() + _LIMIT
    polluted = bool(shadows(os.environ))
    smi = _Task(lambda: ask_smi(_SMI_LIMIT))
    imports = _Task(lambda: import_torch(deadline, compare=polluted)) if with_torch else None
    found = state(deep=deep)
    known = capabilities(found)
    said, imported = smi.result(), imports.result() if imports else None
    try:
        record: Mapping[str, Any] = build()
        flaw, mend = "", ""
    except LoadError as error:
        record, flaw, mend = {}, str(error.what), error.next_step
    torch = _torch(known, imported)
    if not flaw:
        flaw, mend = _flaw(torch, imported)
    exit_code, verdict, next_step = _verdict(found, torch, flaw, mend)
    return Report(
        version=known.version,
        cell=known.cell,
        wheel=known.wheel,
        torch=torch,
        fits=tuple(_fits(record, known, torch, imported)),
        imported=imported,
        cpu=known.cpu,
        parts=known.parts,
        operations=known.operations,
        state=found,
        nvidia_smi=said.text if said else None,
        notes=(*found.notes, *_notes(found, said, imported)),
        exit_code=exit_code,
        verdict=verdict,
        next_step=next_step,
    )


class _Task:
    """Work that goes on beside the rest."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._value = self._work()

    def result(self) -> Any:  # noqa: ANN401 - what the work returns
        """Wait for it."""
        self._thread.join(_LIMIT)
        return self._value


def _torch(known: Capabilities, imported: Imported | None) -> Torch:
    if imported is not None and imported.passed:
        return Torch(
            imported.version, known.torch.built_for, known.torch.built_with, imported.cuda or ""
        )
    binding = known.torch
    return Torch(binding.found, binding.built_for, binding.built_with, _cuda_of_installed())


def _cuda_of_installed() -> str | None:
    """What ``torch/version.py`` says, without importing it."""
    try:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.origin:
            return None
        path = os.path.join(os.path.dirname(spec.origin), "version.py")
        with open(path, encoding="utf-8") as file:
            match = _CUDA.search(file.read(1 << 16))
    except (OSError, ValueError, ImportError):
        return None
    return None if match is None else match[1] or ""


def _flaw(torch: Torch, imported: Imported | None) -> tuple[str, str]:
    """What keeps freewheel from working at all, and how to mend it."""
    if not torch.fits:
        is_ = f"torch {torch.found} is installed" if torch.found else "torch is not installed"
        return (
            f"the wheel is for torch{torch.wanted}, but {is_}",
            f'pip install "torch{torch.wanted}", or a freewheel wheel for your torch',
        )
    if imported is None:
        return "", ""
    if imported.passed is False:
        mend = "install torch again"
        if imported.drop:
            mend = f"take {', '.join(imported.drop)} out of LD_LIBRARY_PATH"
        return f"torch {torch.found} does not import: {imported.reason}", mend
    return imported.refused, "install freewheel again" if imported.refused else ""


def _verdict(found: DeviceState, torch: Torch, flaw: str, mend: str) -> tuple[int, str, str]:
    if flaw:
        return BROKEN, f"broken: {flaw}", mend
    if found.is_ready() and torch.cuda == "":
        only = f"torch {torch.found} is a CPU build; for CUDA all else is ready: {found.reason}"
        mend = "install a CUDA build of torch to use the GPU"
        return CPU_ONLY, f"usable on the CPU: {only}", mend
    if found.is_ready():
        return READY, f"ready: {found.reason}", found.next_step
    if found.fallback is Fallback.FAIL:
        return BROKEN, f"CUDA is broken, the CPU works: {found.reason}", found.next_step
    return CPU_ONLY, f"usable on the CPU: {found.reason}", found.next_step


def _fits(
    record: Mapping[str, Any], known: Capabilities, torch: Torch, imported: Imported | None
) -> Iterator[Fit]:
    """Built for, and found: torch, CUDA, Python, C++ ABI, archs."""
    wanted = record.get("torch", {})
    built_for = f"{torch.wanted or 'unknown'} (with {torch.built_with or 'unknown'})"
    yield Fit("torch", built_for, torch.found or "none", torch.fits)
    if known.wheel.cuda:
        # The wheel needs the driver only, not torch's CUDA libraries: any CUDA build will do.
        names = {None: "unknown", "": "torch is a CPU build, for CPU tensors only"}
        here = names.get(torch.cuda, f"torch is for CUDA {torch.cuda}")
        yield Fit("CUDA", known.wheel.cuda, here, True if torch.cuda else None)
    running = ".".join(map(str, sys.version_info[:3]))
    yield Fit("Python", "3.10 and later", running, sys.version_info >= (3, 10))
    if wanted.get("abi") == "classic" and imported is not None:
        abi = wanted.get("cxx11_abi")
        fits = None if imported.cxx11_abi is None else imported.cxx11_abi == abi
        yield Fit("C++11 ABI", str(abi), str(imported.cxx11_abi), fits)
    for device in known.devices:
        capability = ".".join(map(str, device.capability or ()))
        archs = " ".join(known.wheel.archs) or "no device"
        yield Fit(f"arch {device.ordinal}", archs, capability, device.image is not None)


def _notes(found: DeviceState, said: Smi | None, imported: Imported | None) -> Iterator[str]:
    count = len(found.devices)
    if said is not None and said.devices is not None and said.devices != count:
        yield f"nvidia-smi lists {said.devices} devices, the driver {count}: the driver counts"
    if imported is None:
        return
    yield from imported.elsewhere
    for name, files in imported.libraries.items():
        if len(files) > 1:
            yield f"{name} is mapped {len(files)} times: {', '.join(files)}"
