"""Reading what a visit printed: every event, and output that nobody should trust."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from wheelfab.hosts.visits import MARK, read_visit
from wheelfab.run import Completed


def completed(*events: dict[str, object], returncode: int | None = 0, extra: str = "") -> Completed:
    """A process that told ``events``."""
    lines = [MARK + json.dumps(event) for event in events]
    return Completed(
        argv=("python",),
        returncode=returncode,
        stdout="\n".join([extra, *lines]),
        stderr="Fatal Python error: Segmentation fault\n",
        seconds=1.5,
    )


STATE = {"status": "ready", "reason": "1 device"}
WHOLE: tuple[dict[str, object], ...] = (
    {"event": "start", "mode": "torch"},
    {"event": "begin", "stage": "package"},
    {"event": "stage", "stage": "package", "seconds": 0.25},
    {"event": "state", "state": STATE, "seconds": 0.5},
    {"event": "forked", "status": "ready", "seconds": 0.25},
    {"event": "fork", "returncode": 0},
    {"event": "fork", "returncode": -11},
    {"event": "done", "torch": "2.13.0+cpu"},
)


def test_a_whole_visit() -> None:
    visit = read_visit(completed(*WHOLE, extra="a library prints this"))
    assert (visit.complete, visit.state, visit.state_seconds) == (True, STATE, (0.5,))
    assert (visit.stages, visit.forks, visit.torch) == (
        (("package", 0.25),),
        (0, -11),
        "2.13.0+cpu",
    )
    assert visit.forked == (("ready", 0.25),)
    assert not visit.passed
    assert read_visit(completed(*WHOLE[:6], WHOLE[-1])).passed


def test_a_visit_that_died_names_the_stage_that_was_begun() -> None:
    visit = read_visit(completed(*WHOLE[:2], returncode=-11))
    assert visit.died
    assert not visit.complete
    assert visit.trouble == "stage 'package': SIGSEGV"


def test_all_states_are_kept_in_order() -> None:
    other = {"event": "state", "state": {"status": "unknown"}, "seconds": 0.1}
    visit = read_visit(completed(*WHOLE, other))
    assert (visit.state, visit.states) == (STATE, (STATE, {"status": "unknown"}))


def test_a_line_that_another_writer_began_is_still_read() -> None:
    done = completed(WHOLE[-1], extra="")
    mixed = Completed(
        argv=done.argv,
        returncode=0,
        stdout="Warning: no newline" + done.stdout.strip(),
        stderr="",
        seconds=0.0,
    )
    assert read_visit(mixed).complete


VALUES = st.sampled_from(
    [None, True, -11, 0, 3.5, "x", [], [1], {}, {"status": 1}, "package", "forked", 10**40]
)
KEYS = ("stage", "status", "seconds", "state", "returncode", "error", "torch", "available")
KINDS = (
    "start",
    "begin",
    "stage",
    "error",
    "state",
    "fork",
    "forked",
    "control",
    "done",
    "other",
    3,
)
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(KINDS)}, optional=dict.fromkeys(KEYS, VALUES)
)


@given(st.lists(EVENTS, max_size=8))
def test_odd_events_are_read_or_left_alone(events: list[dict[str, object]]) -> None:
    visit = read_visit(completed(*events))
    assert isinstance(visit.trouble, str)
    assert all(isinstance(code, int) for code in visit.forks)
    assert visit.torch is None or isinstance(visit.torch, str)


@given(st.text(max_size=300))
def test_any_output_is_read(text: str) -> None:
    done = Completed(argv=("x",), returncode=0, stdout=MARK + text, stderr=text, seconds=0.0)
    assert not read_visit(done).passed or '"done"' in text


def test_what_is_too_much_is_left_out() -> None:
    long = MARK + json.dumps({"event": "done", "torch": "x" * 100_000})
    done = Completed(argv=("x",), returncode=0, stdout=long, stderr="", seconds=0.0)
    assert not read_visit(done).complete
