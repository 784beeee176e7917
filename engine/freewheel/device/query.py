"""The state of the hardware, asked once for each process and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import sys

from freewheel.device.record import Device, DeviceState, Status

_LIMIT = 30.0  # seconds
_LONGEST = 3600.0
_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED

_Key = tuple[int, "str | bytes | None", bool]
# The bytes behind os.environ, where it has them: its own look-up of an absent name takes over 1 us.
_BYTES: dict[bytes, bytes] | None = getattr(os.environ, "_data", None)
_known: dict[_Key, DeviceState] = {}


def state(*, deep: bool = False, fresh: bool = False) -> DeviceState:
    """The machine's devices as this wheel can use them; never raises and never hangs.

    ``deep`` also creates a context on each device, in the child. ``fresh`` asks again even if the
    answer is known. It returns within ``FREEWHEEL_PROBE_TIMEOUT`` seconds (30) and half a second.
    """
    key = (os.getpid(), _visible(), deep)
    known = _known.get(key)
    if known is not None and not fresh:
        return known
    earlier = _frozen(key)
    if earlier is not None:
        _known[key] = earlier
        return earlier
    try:
        found = _ask(deep=deep)
    except Exception as error:  # noqa: BLE001 - whoever asks for a state gets one
        found = DeviceState(
            Status.UNKNOWN, f"the driver could not be asked: {type(error).__name__}: {error}"
        )
    _known[key] = found
    return found


def _visible() -> str | bytes | None:
    """CUDA_VISIBLE_DEVICES as it is now, in one form or the other."""
    if type(_BYTES) is dict:
        return _BYTES.get(b"CUDA_VISIBLE_DEVICES")
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def device_count() -> int:
    """The number of visible devices; 0 unless the state is ready."""
    current = state()
    return len(current.devices) if current.is_ready() else 0


def capability(device: int = 0) -> tuple[int, int] | None:
    """The compute capability of a device, ``None`` without a usable one."""
    found = _find(device)
    return None if found is None else found.capability


def memory(device: int = 0) -> int:
    """The total memory of a device in bytes, 0 without a usable one."""
    found = _find(device)
    return 0 if found is None else found.total_memory or 0


def _find(ordinal: int) -> Device | None:
    return next((item for item in state().usable if item.ordinal == ordinal), None)


def _ask(*, deep: bool) -> DeviceState:
    from freewheel.device.files import read_files
    from freewheel.device.judge import Seen, judge
    from freewheel.device.wheel import installed_wheel

    environment = dict(os.environ)
    files = read_files(environment)
    answer = None
    if files.any_sign:
        from freewheel.device import child

        answer = child.ask(environment, time_limit(environment), deep=deep)
    return judge(
        Seen(
            files=files,
            answer=answer,
            wheel=installed_wheel(),
            visible=environment.get("CUDA_VISIBLE_DEVICES"),
            deep=deep,
        )
    )


def time_limit(environment: dict[str, str]) -> float:
    """``FREEWHEEL_PROBE_TIMEOUT`` in seconds, where it is a positive number; else 30."""
    try:
        limit = float(environment.get("FREEWHEEL_PROBE_TIMEOUT", ""))
    except ValueError:
        return _LIMIT
    return min(limit, _LONGEST) if limit > 0 else _LIMIT


def _frozen(key: _Key) -> DeviceState | None:
    """The answer for an earlier CUDA_VISIBLE_DEVICES of this process, if CUDA is in use by now."""
    earlier = [
        (other, found)
        for other, found in _known.items()
        if other[0] == key[0] and other[1] != key[1]
    ]
    if not earlier or not _in_use():
        return None
    import warnings

    (_, before, _), found = earlier[0]
    was, now = (os.fsdecode(item) if isinstance(item, bytes) else item for item in (before, key[1]))
    warnings.warn(
        f"CUDA_VISIBLE_DEVICES changed from {was!r} to {now!r} after CUDA was first used in this "
        "process; it has no effect any more",
        RuntimeWarning,
        stacklevel=3,
    )
    return found


def _in_use() -> bool:
    """Whether this process has initialised CUDA. Loads nothing and initialises nothing."""
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            if torch.cuda.is_initialized():
                return True
        except AttributeError:
            pass  # half imported
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(cuda.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != _NOT_INITIALISED)
    except (OSError, AttributeError):
        return False
