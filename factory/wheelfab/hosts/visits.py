"""What a visit reported, read from its output, and how it ended. Its output is never trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wheelfab.run import Completed

MARK = "@visit "
_LONGEST = 64 * 1024  # characters of a line
_MOST = 20_000  # events


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One process on a host. ``stages`` are those that were done, with their seconds.

    ``began`` is the last stage that was begun, ``error`` the text of the exception that ended a
    stage, ``states`` what the extension said of the hardware each time that it was asked, which
    took ``state_seconds``, ``forks`` the exit codes of the processes forked from it, ``forked`` the
    status that each gave and the seconds it took, ``complete`` whether it came to its end.
    """

    ending: str
    returncode: int | None
    started: bool
    complete: bool
    stages: tuple[tuple[str, float], ...]
    began: str
    error: str
    states: tuple[Mapping[str, Any], ...]
    state_seconds: tuple[float, ...]
    forks: tuple[int, ...]
    forked: tuple[tuple[str, float], ...]
    forked_error: str
    available: bool | None
    torch: str | None
    stderr: str
    seconds: float

    @property
    def state(self) -> Mapping[str, Any] | None:
        """What the extension said first, if anything."""
        return next(iter(self.states), None)

    @property
    def passed(self) -> bool:
        """It came to its end, and so did all that it forked."""
        return self.complete and self.returncode == 0 and not any(self.forks)

    @property
    def died(self) -> bool:
        """A signal, the time limit or somebody's ``exit`` ended it."""
        if self.returncode is None or self.returncode < 0:
            return True
        return not self.complete and not self.error

    @property
    def fork_died(self) -> bool:
        """It came to its end, but a signal ended a process that it forked."""
        return not self.died and any(code < 0 for code in self.forks)

    @property
    def trouble(self) -> str:
        """Why it did not pass, in a line."""
        where = f"stage {self.began!r}: " if self.began else ""
        if self.error:
            return f"{where}{self.ending}: {self.error}" if self.died else f"{where}{self.error}"
        if any(self.forks):
            bad = [code for code in self.forks if code]
            return f"{len(bad)} of {len(self.forks)} forked processes ended badly: {bad[0]}"
        last = self.stderr.strip().rpartition("\n")[2]
        return f"{where}{self.ending}" + (f": {last}" if last and not self.died else "")


@dataclass(slots=True)
class _Read:
    events: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    stages: list[tuple[str, float]] = field(default_factory=list)
    states: list[Mapping[str, Any]] = field(default_factory=list)
    state_seconds: list[float] = field(default_factory=list)
    forks: list[int] = field(default_factory=list)
    forked: list[tuple[str, float]] = field(default_factory=list)


def read_visit(done: Completed) -> Visit:
    """The visit that a finished process made."""
    read = _Read()
    for line in done.stdout.splitlines():
        at = line.find(MARK)
        if at < 0 or len(line) > _LONGEST or read.events >= _MOST:
            continue
        try:
            event = json.loads(line[at + len(MARK) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            read.events += 1
            _take(read, event)
    values = read.values
    return Visit(
        ending=done.ending,
        returncode=done.returncode,
        started="start" in values,
        complete="done" in values,
        stages=tuple(read.stages),
        began=values.get("began", ""),
        error=values.get("error", ""),
        states=tuple(read.states),
        state_seconds=tuple(read.state_seconds),
        forks=tuple(read.forks),
        forked=tuple(read.forked),
        forked_error=values.get("forked_error", ""),
        available=values.get("available"),
        torch=values.get("torch"),
        stderr=done.stderr,
        seconds=done.seconds,
    )


def _take(read: _Read, event: Mapping[str, Any]) -> None:
    """Keep what one event says, where it has the form that ``visit.py`` gives it."""
    values = read.values
    match event:
        case {"event": "start" | "done" as name}:
            values[name] = True
            torch = event.get("torch")
            values["torch"] = torch if isinstance(torch, str) else None
        case {"event": "begin", "stage": str(stage)}:
            values["began"] = stage
        case {"event": "stage", "stage": str(stage), "seconds": float(seconds)}:
            read.stages.append((stage, seconds))
        case {"event": "error", "stage": "forked", "error": str(text)}:
            values["forked_error"] = text
        case {"event": "error", "stage": str(stage), "error": str(text)} if not read.forks:
            values |= {"began": stage, "error": text}
        case {"event": "state", "state": dict(state), "seconds": float(seconds)}:
            read.state_seconds.append(seconds)
            read.states.append(state)
        case {"event": "forked", "status": str(status), "seconds": float(seconds)}:
            read.forked.append((status, seconds))
        case {"event": "fork", "returncode": int(code)}:
            read.forks.append(code)
        case {"event": "control"}:
            values["available"] = bool(event.get("available"))
