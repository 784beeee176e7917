"""The state of the hardware, asked once for each process and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
from dataclasses import dataclass

from freewheel.device import use
from freewheel.device.record import Device, DeviceState, Status

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LIMIT = 30.0  # seconds
_LONGEST = 3600.0

_Key = tuple[int, "str | bytes | None", bool]
# The bytes behind os.environ, where it has them: its own look-up of an absent name takes over 1 us.
_BYTES: dict[bytes, bytes] | None = getattr(os.environ, "_data", None)
_known: dict[_Key, DeviceState] = {}


@dataclass
class _Latest:
    """The last question, with the variable as it was then, and its answer."""

    key: _Key | None = None
    state: DeviceState | None = None


@dataclass
class _InUse:
    """CUDA_VISIBLE_DEVICES as CUDA was first used under it in ``process``, once that is noticed."""

    process: int = 0
    visible: str | bytes | None = None


_latest = _Latest()
_in_use = _InUse()


def state(*, deep: bool = False, fresh: bool = False) -> DeviceState:
    """The machine's devices as this wheel can use them; never raises and never hangs.

    ``deep`` also creates a context on each device, in the child. ``fresh`` asks again even if the
    answer is known. It returns within ``FREEWHEEL_PROBE_TIMEOUT`` seconds (30) and half a second.
    Once CUDA is in use, every answer is for the CUDA_VISIBLE_DEVICES that it was first used under.
    """
    asked = (os.getpid(), _visible(), deep)
    if asked == _latest.key and not fresh and _latest.state is not None:
        return _latest.state
    visible = _in_effect(asked)
    key = (asked[0], visible, deep)
    found = (None if fresh else _known.get(key)) or _answer(visible, deep=deep)
    _known[key] = found
    _latest.key, _latest.state = asked, found
    return found


def _answer(visible: str | bytes | None, *, deep: bool) -> DeviceState:
    try:
        found = _forked() or _ask(_environment(visible), deep=deep)
    except Exception as error:  # noqa: BLE001 - whoever asks for a state gets one
        return DeviceState(
            Status.UNKNOWN, f"the driver could not be asked: {type(error).__name__}: {error}"
        )
    use.watch.sound = use.watch.sound or bool(found.devices)
    return found


def _visible() -> str | bytes | None:
    """CUDA_VISIBLE_DEVICES as it is now, in one form or the other."""
    if type(_BYTES) is dict:
        return _BYTES.get(b"CUDA_VISIBLE_DEVICES")
    return os.environ.get(_VISIBLE)


def _environment(visible: str | bytes | None) -> dict[str, str]:
    """This process's environment, with that value of CUDA_VISIBLE_DEVICES."""
    environment = dict(os.environ)
    environment.pop(_VISIBLE, None)
    return environment if visible is None else {**environment, _VISIBLE: os.fsdecode(visible)}


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


def _ask(environment: dict[str, str], *, deep: bool) -> DeviceState:
    from freewheel.device.files import read_files
    from freewheel.device.judge import Seen, judge
    from freewheel.device.shadows import shadows
    from freewheel.device.wheel import installed_wheel

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
            visible=environment.get(_VISIBLE),
            deep=deep,
            shadows=shadows(environment),
        )
    )


def _forked() -> DeviceState | None:
    """The state of a process whose parent had used CUDA, whatever a fresh process would get."""
    user = use.used_before_fork()
    if user is None:
        return None
    named = f"process {user}" if user else "the parent process"
    return DeviceState(
        Status.FORKED,
        f"CUDA was first used in {named} before it forked process {os.getpid()}, and a driver does "
        "not survive a fork",
        'start workers with spawn (multiprocessing.get_context("spawn")), or use CUDA only after '
        "forking",
    )


def time_limit(environment: dict[str, str]) -> float:
    """``FREEWHEEL_PROBE_TIMEOUT`` in seconds, where it is a positive number; else 30."""
    try:
        limit = float(environment.get("FREEWHEEL_PROBE_TIMEOUT", ""))
    except ValueError:
        return _LIMIT
    return min(limit, _LONGEST) if limit > 0 else _LIMIT


def _in_effect(asked: _Key) -> str | bytes | None:
    """The CUDA_VISIBLE_DEVICES that counts: once CUDA is in use, the one before the change."""
    process, now, _ = asked
    last = _latest.key
    if last is None or last[0] != process:
        return now
    if _in_use.process != process:
        if last[1] == now or not use.is_used(sound=use.watch.sound):
            return now
        _in_use.process, _in_use.visible = process, last[1]
    was = _in_use.visible
    if now not in (was, last[1]):
        named = [os.fsdecode(item) if item is not None else None for item in (was, now)]
        _warn(
            f"{_VISIBLE} changed from {named[0]!r} to {named[1]!r} after CUDA was first used in "
            "this process; it has no effect any more"
        )
    return was


def _warn(text: str) -> None:
    import logging
    import warnings

    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except RuntimeWarning:  # where warnings are errors, a state is an answer all the same
        logging.getLogger("freewheel.device").warning(text)
