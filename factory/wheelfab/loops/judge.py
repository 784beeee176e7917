"""What a load did, as it reported and as it ended, and the verdict on it."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wheelfab.errors import HarnessError

LINE_LIMIT = 4096  # bytes of one event
START, EXIT = "start", "exit"  # what is timed before a load's first stage and after its last
_NANO = 1e-9
_TAIL = 4000  # characters of stderr and stack kept in a failure


class EventKind(StrEnum):
    """What the child of the loop can report."""

    READY = "ready"  # the forking process has imported what it imports once
    FORK = "fork"  # it is about to fork a load
    START = "start"  # a load's interpreter runs
    STAGE = "stage"  # a stage is done
    ERROR = "error"  # a stage raised
    DONE = "done"  # all stages are done
    END = "end"  # a forked load has ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One line of a report; ``at`` is the monotonic clock in nanoseconds."""

    kind: EventKind
    load: int
    at: int
    stage: str | None = None
    seconds: float | None = None
    error: str | None = None
    torch: str | None = None
    returncode: int | None = None
    timed_out: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """All that is known of one load when it is over; times are monotonic, in nanoseconds."""

    load: int
    events: tuple[Event, ...]
    started: int
    ended: int
    returncode: int
    timed_out: bool
    stderr: str = ""
    stack: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a load failed: in which stage, how its process ended, and what it left behind."""

    load: int
    stage: str
    signal: str | None
    exit_code: int | None
    timed_out: bool
    error: str | None
    stderr: str
    stack: str

    @property
    def summary(self) -> str:
        """One line: ``load 7: stage 'torch': SIGSEGV``."""
        ending = self.signal or f"exit code {self.exit_code}"
        how = "timed out" if self.timed_out else ending
        return f"load {self.load}: stage {self.stage!r}: {how}" + (
            f": {self.error}" if self.error else ""
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The verdict on one load: passed unless ``failure`` is there. Times are in seconds."""

    load: int
    total: float
    stages: Mapping[str, float]
    torch: str | None
    failure: Failure | None = None

    @property
    def passed(self) -> bool:
        """All stages were done and the interpreter ended with exit code 0."""
        return self.failure is None


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "load": int,
    "at": int,
    "stage": str,
    "seconds": (int, float),
    "error": str,
    "torch": (str, type(None)),
    "returncode": int,
    "timed_out": bool,
}
_WANTED: Mapping[EventKind, frozenset[str]] = {
    EventKind.READY: frozenset(),
    EventKind.FORK: frozenset(),
    EventKind.START: frozenset(),
    EventKind.STAGE: frozenset({"stage", "seconds"}),
    EventKind.ERROR: frozenset({"stage", "error"}),
    EventKind.DONE: frozenset({"torch"}),
    EventKind.END: frozenset({"returncode", "timed_out"}),
}


def parse_event(line: bytes) -> Event:
    """Read one line of a report; raises ``HarnessError`` for what ``load.py`` never sends."""
    try:
        return _event(line)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HarnessError(
            f"a load's report holds a line that is no event ({error}): {line[:80]!r}",
            where="import loop",
            next_step="find what in the package writes to descriptors that it did not open",
        ) from error


def _event(line: bytes) -> Event:
    if len(line) > LINE_LIMIT:
        raise ValueError(f"{len(line)} bytes long")
    record = json.loads(line)
    kind = EventKind(record.pop("event"))
    if record.keys() != _WANTED[kind] | {"load", "at"}:
        raise ValueError(f"keys {sorted(record)}")
    for key, value in record.items():
        if not isinstance(value, _TYPES[key]):
            raise TypeError(f"{key} is {value!r}")
    return Event(kind=kind, **record)


def judge(stages: Sequence[str], evidence: Evidence) -> Load:
    """The verdict on a load whose stages are named ``stages``.

    Passed means that every stage was reported done, in order, and that the interpreter then ended
    by itself with exit code 0. Raises ``HarnessError`` when the report contradicts itself or when
    the load never began, which says nothing about the wheel.
    """
    events = evidence.events
    if not events or events[0].kind is not EventKind.START:
        raise HarnessError(
            f"load {evidence.load} ended ({ending_of(evidence.returncode)}) before its first "
            f"stage: {evidence.stderr.strip()[-_TAIL:] or 'nothing on stderr'}",
            where="import loop",
            next_step="run the interpreter of the loop's environment by hand",
        )
    finished = [event for event in events if event.kind is EventKind.STAGE]
    if [event.stage for event in finished] != list(stages[: len(finished)]):
        raise HarnessError(
            f"load {evidence.load} reports stages {[event.stage for event in finished]}, "
            f"planned are {list(stages)}",
            where="import loop",
        )
    done = _first(events, EventKind.DONE)
    times = {START: (events[0].at - evidence.started) * _NANO}
    times |= {str(event.stage): float(event.seconds or 0.0) for event in finished}
    if done is not None:
        times[EXIT] = (evidence.ended - done.at) * _NANO
    return Load(
        load=evidence.load,
        total=(evidence.ended - evidence.started) * _NANO,
        stages=times,
        torch=done.torch if done is not None else None,
        failure=_failure(stages, evidence, len(finished), done),
    )


def _failure(
    stages: Sequence[str], evidence: Evidence, finished: int, done: Event | None
) -> Failure | None:
    raised = _first(evidence.events, EventKind.ERROR)
    complete = done is not None and finished == len(stages) and raised is None
    code = evidence.returncode
    if complete and code == 0 and not evidence.timed_out:
        return None
    error = raised.error if raised is not None else None
    if error is None and code == 0 and not evidence.timed_out:
        error = "the process ended before the stage was done"
    return Failure(
        load=evidence.load,
        stage=stages[finished] if finished < len(stages) else EXIT,
        signal=signal_name(-code) if code < 0 else None,
        exit_code=code if code >= 0 else None,
        timed_out=evidence.timed_out,
        error=error,
        stderr=evidence.stderr[-_TAIL:],
        stack=evidence.stack[-_TAIL:],
    )


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending_of(returncode: int) -> str:
    """``SIGSEGV`` for -11, ``exit code 3`` for 3."""
    return signal_name(-returncode) if returncode < 0 else f"exit code {returncode}"


def _first(events: Sequence[Event], kind: EventKind) -> Event | None:
    return next((event for event in events if event.kind is kind), None)
