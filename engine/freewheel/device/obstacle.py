"""Why a device cannot be used now, by what the driver and NVML say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freewheel.device.answer import code_of, number
from freewheel.device.codes import ALLOW, CODES, FREE_IT, RESTART
from freewheel.device.record import Status

_LEAST_MEMORY = 256 << 20  # bytes; less does not even hold a context
_EXCLUSIVE, _PROHIBITED = 3, 2  # CU_COMPUTEMODE_* of cuda.h


@dataclass(frozen=True)
class Obstacle:
    """Why nobody can use a device now, in the words and the status of a state."""

    status: Status
    note: str
    next_step: str
    code: int | None = None


def obstacle_of(entry: Mapping[str, Any]) -> Obstacle | None:
    """Why nobody can use the device now; ``None`` where it is free."""
    mode, free = number(entry.get("compute_mode")), number(entry.get("free_memory"))
    refused = _refused(entry, "get", "cuDeviceGet")
    if refused is not None:
        return refused
    if mode == _PROHIBITED:  # before the context, whose code then says that the device is taken
        return Obstacle(Status.PROHIBITED, "its compute mode is prohibited", ALLOW)
    refused = _refused(entry, "context", "cuDevicePrimaryCtxRetain")
    if refused is not None:
        return refused
    if mode == _EXCLUSIVE and number(entry.get("processes")):
        return Obstacle(Status.BUSY, "another process has it exclusively", FREE_IT)
    if free is not None and free < _LEAST_MEMORY:
        return Obstacle(Status.BUSY, f"only {free >> 20} MiB of its memory are free", FREE_IT)
    return None


def _refused(entry: Mapping[str, Any], key: str, call: str) -> Obstacle | None:
    """What a result other than 0 means, by the table of codes."""
    code = code_of(entry[key]) if key in entry else 0
    if code is None:
        return Obstacle(Status.UNKNOWN, f"{call} gave no result", "install freewheel again")
    if code == 0:
        return None
    status, meaning, next_step = CODES.get(code, (Status.UNKNOWN, "", RESTART))
    note = f"{call} returned {code}" + (f", {meaning}" if meaning else "")
    return Obstacle(status, note, next_step, code)
