"""What this installation can do on this machine: ``freewheel.capabilities()``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from freewheel import _native
from freewheel.device import Device, DeviceState, Needs, state
from freewheel.device.wheel import Wheel, wheel_of
from freewheel.errors import LoadError

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# The operations, and which limits of ``_C.limits()`` each has beside its dtypes.
_OPERATIONS: dict[str, tuple[str, ...]] = {
    "rms_norm": (),
    "fused_add_rms_norm": (),
    "silu_and_mul": (),
    "rotary_embedding": (),
    "reshape_and_cache": ("head_sizes", "block_sizes"),
    "paged_attention": ("head_sizes", "block_sizes"),
}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """A file of the wheel, really opened: ``usable`` is ``None`` where it was not tried."""

    name: str
    usable: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Cpu:
    """Instruction sets, least first: in the library, and those that this machine runs.

    ``chosen`` is what operations use (see ``FREEWHEEL_ISA``), ``None`` with a reason if none can.
    """

    built: tuple[str, ...] = ()
    usable: tuple[str, ...] = ()
    chosen: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Binding:
    """The binding to torch: what it was built for, what is there, and whether they load together.

    ``loadable`` is ``None`` until ``freewheel.load()`` has tried, where nothing speaks against it.
    """

    built_for: str | None
    built_with: str | None
    abi: str | None
    found: str | None
    loadable: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Operation:
    """What an operation takes, on the CPU and on CUDA alike; no sizes: any."""

    name: str
    dtypes: tuple[str, ...]
    head_sizes: tuple[int, ...] = ()
    block_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What can be done here. Nothing in it raises; ``validate`` does, for a requirement."""

    version: str
    cell: str | None
    cpu: Cpu
    wheel: Wheel
    torch: Binding
    state: DeviceState
    parts: tuple[Part, ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Each visible device, with the image of the wheel that it would take."""
        return self.state.devices

    def validate(self, needs: Needs) -> None:
        """Raise ``DeviceError`` unless the devices meet the requirement."""
        needs.validate_device(self.state)


def capabilities(known: DeviceState | None = None) -> Capabilities:
    """Ask the wheel, the machine and the driver; never raises, imports no torch.

    The driver is asked as by ``freewheel.device.state()``, once, in a child; not at all where a
    state is ``known`` already.
    """
    record: dict[str, Any] = _try(_native.build, {})
    cpu, limits, parts = _libraries()
    binding = _binding(record)
    return Capabilities(
        version=_try(_native.version, "0+unknown"),
        cell=record.get("cell"),
        cpu=cpu,
        wheel=wheel_of(record or None),
        torch=binding,
        state=known or state(),
        parts=(*parts, Part("_torch.so", binding.loadable, binding.reason), _program()),
        operations=tuple(
            Operation(name, tuple(limits["dtypes"]), **{key: tuple(limits[key]) for key in keys})
            for name, keys in _OPERATIONS.items()
            if limits
        ),
    )


def _try(ask: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - what cannot be known is left out; `parts` says why
        return otherwise


def _libraries() -> tuple[Cpu, Mapping[str, Any], list[Part]]:
    """Import ``_C`` and let it open ``_kernels.so``: a file that is there need not load."""
    try:
        from freewheel import _C
    except ImportError as error:
        return Cpu(reason=str(error)), {}, [_broken("_C", error), Part("_kernels.so", usable=None)]
    limits: Mapping[str, Any] = _C.limits()
    parts = [Part("_C", usable=True)]
    try:
        sets = _C.instruction_sets()
    except ImportError as error:
        return Cpu(reason=str(error)), limits, [*parts, _broken("_kernels.so", error)]
    parts.append(Part("_kernels.so", usable=True))
    built, usable = tuple(sets["built"].split()), tuple(sets["usable"].split())
    try:
        return Cpu(built, usable, _C.kernels()["cpu_isa"]), limits, parts
    except RuntimeError as error:
        return Cpu(built, usable, None, str(error)), limits, parts


def _broken(name: str, error: Exception) -> Part:
    return Part(name, usable=False, reason=str(error))


def _binding(record: Mapping[str, Any]) -> Binding:
    wanted = record.get("torch", {})
    found = torch_version()
    loadable, reason = _loadable(record, found)
    return Binding(
        built_for=wanted.get("requirement"),
        built_with=wanted.get("headers"),
        abi=wanted.get("abi"),
        found=found,
        loadable=loadable,
        reason=reason,
    )


def _loadable(record: Mapping[str, Any], found: str | None) -> tuple[bool | None, str]:
    outcome = _native.outcome()
    if outcome is True:
        return True, ""
    if isinstance(outcome, LoadError):
        return False, str(outcome)
    if not record:
        return False, "freewheel has no native libraries here"
    if found is None:
        return False, "torch is not installed"
    try:
        _native.check_torch(record, found)
    except (LoadError, ValueError) as error:
        return False, str(error)
    return None, "not tried yet"


def torch_version() -> str | None:
    """The torch that is imported, else the one that is installed, by its metadata."""
    imported = getattr(sys.modules.get("torch"), "__version__", None)
    if imported is not None:
        return str(imported)
    from importlib import metadata

    return _try(lambda: metadata.version("torch"), None)


def _program() -> Part:
    path = os.path.join(_FOLDER, "_probe")
    if not os.path.isfile(path):
        return Part("_probe", usable=False, reason="it is missing; a second Python asks the driver")
    if not os.access(path, os.X_OK):
        reason = "it is not executable; a second Python asks the driver"
        return Part("_probe", usable=False, reason=reason)
    return Part("_probe", usable=True)
