"""Verdicts on loads: passed means every stage and a clean exit; a broken report is no verdict."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.errors import HarnessError
from wheelfab.loops.judge import Event, EventKind, Evidence, judge, parse_event, signal_name

STAGES = ("package", "torch", "operation")
SECOND = 1_000_000_000


def events(done: int, *, error: str | None = None, end: bool = False) -> tuple[Event, ...]:
    """What a load reports that finished ``done`` stages of one second each."""
    found = [Event(kind=EventKind.START, load=7, at=SECOND)]
    for index in range(done):
        at = (2 + index) * SECOND
        found.append(Event(kind=EventKind.STAGE, load=7, at=at, stage=STAGES[index], seconds=1.0))
    if error is not None:
        found.append(
            Event(kind=EventKind.ERROR, load=7, at=9 * SECOND, stage=STAGES[done], error=error)
        )
    if end:
        found.append(Event(kind=EventKind.DONE, load=7, at=5 * SECOND, torch="2.4.1+cpu"))
    return tuple(found)


def evidence(seen: tuple[Event, ...], **values: Any) -> Evidence:
    """The evidence of a load that began at 0 s and ended at 6 s, with exit code 0 by default."""
    ending = {"returncode": 0, "timed_out": False} | values
    return Evidence(load=7, events=seen, started=0, ended=6 * SECOND, **ending)


def test_all_stages_and_exit_code_0_pass() -> None:
    load = judge(STAGES, evidence(events(3, end=True)))
    assert load.passed
    assert load.total == pytest.approx(6.0)
    assert load.torch == "2.4.1+cpu"
    assert dict(load.stages) == pytest.approx(
        {"start": 1.0, "package": 1.0, "torch": 1.0, "operation": 1.0, "exit": 1.0}
    )


@pytest.mark.parametrize(
    ("seen", "ending", "stage", "summary"),
    [
        (events(0), {"returncode": -11}, "package", "load 7: stage 'package': SIGSEGV"),
        (events(2), {"returncode": -6}, "operation", "load 7: stage 'operation': SIGABRT"),
        (events(3, end=True), {"returncode": -6}, "exit", "load 7: stage 'exit': SIGABRT"),
        (events(3, end=True), {"returncode": 3}, "exit", "load 7: stage 'exit': exit code 3"),
        (
            events(1, error="ImportError: no"),
            {"returncode": 1},
            "torch",
            "load 7: stage 'torch': exit code 1: ImportError: no",
        ),
        (
            events(1),
            {"returncode": 0},
            "torch",
            "load 7: stage 'torch': exit code 0: the process ended before the stage was done",
        ),
        (
            events(2),
            {"returncode": -6, "timed_out": True},
            "operation",
            "load 7: stage 'operation': timed out",
        ),
        (
            events(3, end=True),
            {"returncode": 0, "timed_out": True},
            "exit",
            "load 7: stage 'exit': timed out",
        ),
        (
            events(3),
            {"returncode": 0},
            "exit",
            "load 7: stage 'exit': exit code 0: the process ended before the stage was done",
        ),
    ],
)
def test_a_failure_names_stage_and_ending(
    seen: tuple[Event, ...], ending: dict[str, Any], stage: str, summary: str
) -> None:
    load = judge(STAGES, evidence(seen, **ending))
    assert load.failure is not None
    assert load.failure.stage == stage
    assert load.failure.summary == summary


def test_an_error_that_was_followed_by_exit_code_0_still_fails() -> None:
    load = judge(STAGES, evidence(events(1, error="SystemExit: 0")))
    assert load.failure is not None
    assert (load.failure.exit_code, load.failure.error) == (0, "SystemExit: 0")


def test_a_failure_keeps_the_end_of_stderr_and_the_stack() -> None:
    load = judge(STAGES, evidence(events(0), returncode=-11, stderr="x" * 9000 + "end", stack="S"))
    assert load.failure is not None
    assert load.failure.stderr.endswith("xend")
    assert len(load.failure.stderr) == 4000
    assert load.failure.stack == "S"


@pytest.mark.parametrize(
    "seen",
    [
        (),
        events(3, end=True)[1:],
        (events(1)[0], events(2)[2]),
        (*events(3), events(1)[1]),
    ],
)
def test_a_report_that_makes_no_sense_is_no_verdict(seen: tuple[Event, ...]) -> None:
    with pytest.raises(HarnessError):
        judge(STAGES, evidence(seen, returncode=-11))


def test_a_load_that_never_began_names_its_ending_and_stderr() -> None:
    with pytest.raises(HarnessError, match=r"exit code 2\) before its first stage: can't open"):
        judge(STAGES, evidence((), returncode=2, stderr="can't open file 'load.py'\n"))


def line(**values: Any) -> bytes:
    """A line as the child sends it."""
    return json.dumps(values).encode()


def test_events_are_read() -> None:
    assert parse_event(line(event="stage", load=3, at=5, stage="torch", seconds=0.5)) == Event(
        kind=EventKind.STAGE, load=3, at=5, stage="torch", seconds=0.5
    )
    assert parse_event(line(event="done", load=0, at=5, torch=None)).torch is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 4000,
        b"1" * 5000,
        line(event="nothing", load=0, at=0),
        line(event="start", load=0),
        line(event="start", load="0", at=0),
        line(event="start", load=0, at=0, more=1),
        line(event="stage", load=0, at=0, stage="a", seconds="1"),
        line(event="end", load=0, at=0, returncode=0, timed_out="no"),
    ],
)
def test_garbage_is_an_error_of_the_harness(garbage: bytes) -> None:
    with pytest.raises(HarnessError, match="no event"):
        parse_event(garbage)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_an_error_of_the_harness(data: bytes) -> None:
    with contextlib.suppress(HarnessError):
        assert isinstance(parse_event(data), Event)


def test_signals_have_names_even_when_nameless() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(45) == "signal 45"
