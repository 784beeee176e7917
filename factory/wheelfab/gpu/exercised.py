"""What an exercise of the devices reported, and whether it is good. Its output is never trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wheelfab.run import Completed

MARK = "@device "
# A driver gives memory out in pieces of 2 MiB, and torch's allocator may take one more of them.
DRIVER_TOLERANCE = 4 << 20  # bytes
TORCH_TOLERANCE = 64 << 10  # bytes of tensors that are alive
_LONGEST = 64 * 1024  # characters of a line
_MOST = 20_000  # events
_SHOWN = 400  # characters of an error


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes of memory: ``free`` and ``total`` of the device by the driver's word.

    ``allocated`` is what torch's allocator has given out, ``None`` where torch has none for the
    device; ``host`` is what the process has of the machine's memory.
    """

    free: int
    total: int
    allocated: int | None
    host: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceResult:
    """One device. Times are of the host, in seconds; ``None`` for what was not done.

    ``launches`` of the soak were made and right. ``failure`` is why it is not good, or ``""``.
    """

    ordinal: int
    image: str
    operation_seconds: float | None
    launches: int
    soak_seconds: float | None
    before: Memory | None
    after: Memory | None
    failure: str

    @property
    def growth(self) -> int | None:
        """Bytes of the device that the soak took and did not give back, by the driver."""
        if self.before is None or self.after is None:
            return None
        return self.before.free - self.after.free


@dataclass(frozen=True, kw_only=True, slots=True)
class Exercise:
    """All devices, the torch that was imported, and why the process did not come to its end."""

    devices: tuple[DeviceResult, ...]
    torch: str | None
    failure: str


@dataclass(slots=True)
class _Read:
    began: str = ""
    torch: str | None = None
    done: bool = False
    error: str = ""
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)


def read_exercise(done: Completed, images: Mapping[int, str], launches: int) -> Exercise:
    """What the finished process did on the devices in ``images``, of ``launches`` asked for."""
    read = _Read(devices={ordinal: {} for ordinal in images})
    for event in _events(done.stdout):
        _take(read, event)
    ending = _ending(read, done)
    devices = [
        _device(ordinal, image, read.devices[ordinal], ending, launches)
        for ordinal, image in images.items()
    ]
    return Exercise(devices=tuple(devices), torch=read.torch, failure=ending)


def _ending(read: _Read, done: Completed) -> str:
    """Why the process did not come to its end, or ``""``."""
    if read.done and done.returncode == 0:
        return ""
    where = f"{read.began}: " if read.began else ""
    if read.error:
        return f"{where}{read.error}"
    last = done.stderr.strip().rpartition("\n")[2]
    said = f": {last[:_SHOWN]}" if last and (done.returncode or 0) > 0 else ""
    return f"{where}{done.ending}{said}"


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    seen = 0
    for line in text.splitlines():
        at = line.find(MARK)
        if at < 0 or len(line) > _LONGEST or seen >= _MOST:
            continue
        try:
            event = json.loads(line[at + len(MARK) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            seen += 1
            yield event


def _take(read: _Read, event: Mapping[str, Any]) -> None:
    """Keep what one event says, where it has the form that ``exercise.py`` gives it."""
    match event:
        case {"event": "begin", "ordinal": None, "what": str(what)}:
            read.began = f"stage {what!r}"
        case {"event": "error", "ordinal": None, "error": str(text)}:
            read.error = text
        case {"event": "done"}:
            torch = event.get("torch")
            read.done, read.torch = True, torch if isinstance(torch, str) else None
        case {"event": str(name), "ordinal": int(ordinal)} if ordinal in read.devices:
            if name == "begin":
                read.began = f"{event.get('what')} on device {ordinal}"
            _take_device(read.devices[ordinal], event)


def _take_device(values: dict[str, Any], event: Mapping[str, Any]) -> None:
    match event:
        case {"event": "begin", "what": str(what)}:
            values["began"] = what
        case {"event": "error", "error": str(text)}:
            values.setdefault("error", text)
        case {"event": "operation", "seconds": float(seconds)}:
            values["operation"] = seconds
        case {"event": "soak", "launches": int(launches), "seconds": float(seconds)}:
            values |= {"launches": launches, "soak": seconds}
        case {
            "event": "memory",
            "when": "before" | "after" as when,
            "free": int(free),
            "total": int(total),
            "allocated": (int() | None) as allocated,
            "host": int(host),
        }:
            values[when] = Memory(free=free, total=total, allocated=allocated, host=host)


def _device(
    ordinal: int, image: str, values: Mapping[str, Any], ending: str, launches: int
) -> DeviceResult:
    before, after = values.get("before"), values.get("after")
    return DeviceResult(
        ordinal=ordinal,
        image=image,
        operation_seconds=values.get("operation"),
        launches=values.get("launches", 0),
        soak_seconds=values.get("soak"),
        before=before,
        after=after,
        failure=_failure(values, ending, launches) or growth_failure(before, after, launches),
    )


def _failure(values: Mapping[str, Any], ending: str, launches: int) -> str:
    """Why operation and soak are not good, or ``""``."""
    began, made = values.get("began", ""), values.get("launches", 0)
    if "error" in values:
        where = f"launch {made + 1} of {launches}" if "soak" in values else began
        where = "after the soak" if made >= launches else where
        return f"{where}: {values['error']}"
    if "operation" not in values:
        return ending or "its operation was not run"
    if made < launches or "after" not in values:
        return ending or f"{made} of {launches} launches were made"
    return ""


def growth_failure(before: Memory | None, after: Memory | None, launches: int) -> str:
    """Whether the soak kept more memory than measuring it is uncertain by, in words, or ``""``."""
    if before is None or after is None:
        return ""
    grown: Sequence[tuple[str, int, int]] = (
        ("the device's memory in use", before.free - after.free, DRIVER_TOLERANCE),
        ("torch's allocated", (after.allocated or 0) - (before.allocated or 0), TORCH_TOLERANCE),
    )
    for what, bytes_, tolerance in grown:
        if bytes_ > tolerance:
            return (
                f"{what} grew by {bytes_} bytes in {launches} launches; "
                f"{tolerance} may come from measuring"
            )
    return ""
