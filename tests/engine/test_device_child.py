"""What is made of anything that a child may write: no process is started here."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freewheel.device import child
from freewheel.device.answer import Answer
from freewheel.device.files import Files, Library
from freewheel.device.judge import Seen, judge
from freewheel.device.record import Asked, DeviceState
from freewheel.device.wheel import Wheel

FILES = Files(None, (), dxg=False, libraries=(Library("/usr/lib/libcuda.so.1", None, "WSL"),))
WHOLE = b'step cuInit\n{"schema": 1, "initialised": {"code": 100}}\n'


def said(text: bytes, *, patience: float = 5.0) -> tuple[bytes, bool]:
    """What is heard of a child that writes ``text`` and ends."""
    reader, writer = os.pipe()

    def write() -> None:
        rest = text
        try:
            while rest:
                rest = rest[os.write(writer, rest) :]
        except BrokenPipeError:
            pass  # it was cut off
        finally:
            os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return child._listen(reader, time.monotonic() + patience)
    finally:
        os.close(reader)
        thread.join()


@given(st.binary(max_size=2000))
def test_row_27_garbage_is_no_answer_and_no_error(text: bytes) -> None:
    data, step = child._parse(text)
    assert data is None or "schema" in data
    assert isinstance(step, str)
    state = judge(Seen(FILES, Answer(Asked.PROGRAM, data, step), Wheel(), None))
    assert isinstance(state, DeviceState)
    assert not state.is_ready()


@given(before=st.binary(max_size=200).filter(lambda text: b"}" not in text))
def test_garbage_before_the_answer_hides_nothing(before: bytes) -> None:
    """A library of the driver may write to any descriptor."""
    text, _ = said(before + b"\n" + WHOLE)
    data, step = child._parse(text)
    assert data is not None
    assert data["initialised"] == {"code": 100}
    assert step == "cuInit"


@pytest.mark.parametrize(
    "text",
    [
        b"{}\n",
        b"[]\n",
        b'{"x": 1}\n',
        b"{" * 100_000 + b"\n",
        b'{"a":' * 50_000 + b"\n",
        b"\xff{}\n",
    ],
)
def test_other_objects_are_no_answer(text: bytes) -> None:
    assert child._parse(text) == (None, "")
    heard, ended = said(text)
    assert (heard, ended) == (text, True)


def test_the_last_whole_answer_counts() -> None:
    text = WHOLE + b'{"schema": 1, "missing": "cuInit"}\n{"schema": 1'
    assert child._parse(text) == ({"schema": 1, "missing": "cuInit"}, "cuInit")


def test_a_flood_is_cut_off() -> None:
    heard, ended = said(b"x" * (2 * child._MAX_BYTES))
    assert ended
    assert len(heard) <= child._MAX_BYTES + (1 << 16)


def test_silence_ends_at_the_deadline() -> None:
    reader, writer = os.pipe()
    try:
        begun = time.monotonic()
        assert child._listen(reader, begun + 0.05) == (b"", False)
        assert time.monotonic() - begun < 1.0
    finally:
        os.close(reader)
        os.close(writer)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(json_values)
def test_what_is_parsed_is_an_object_with_a_schema(value: object) -> None:
    data, _ = child._parse(json.dumps(value).encode() + b"\n")
    assert data is None or (isinstance(data, dict) and "schema" in data)
