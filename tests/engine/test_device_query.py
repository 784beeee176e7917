"""A state for every question, asked once; nothing is raised. No process is started here."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

import pytest

from freewheel.device import DeviceState, Status, query, use
from freewheel.device.record import Device

DEVICE = Device(0, "Fake", (8, 0), 1 << 34, None, None, mig=False, image="8.0")
READY = DeviceState(Status.READY, "one device", devices=(DEVICE,))
HIDDEN = DeviceState(Status.NO_DEVICE, "hidden")


class Machine:
    """Answers questions, and counts them."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.used = False

    def ask(self, environment: dict[str, str], *, deep: bool) -> DeviceState:
        """One device, unless it is hidden."""
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        self.asked.append(visible)
        return replace(HIDDEN if visible == "-1" else READY, deep=deep)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with one device; nothing is known of it yet."""
    machine = Machine()
    monkeypatch.setattr(query, "_ask", machine.ask)
    monkeypatch.setattr(query, "_known", {})
    monkeypatch.setattr(query, "_latest", query._Latest())
    monkeypatch.setattr(query, "_in_use", query._InUse())
    monkeypatch.setattr(use, "watch", use._Watch())
    monkeypatch.setattr(use, "is_used", lambda *, sound: machine.used and sound)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


def test_it_is_asked_once(machine: Machine) -> None:
    assert query.state() is query.state()
    assert machine.asked == [None]
    query.state(fresh=True)
    query.state(deep=True)
    query.state()
    assert len(machine.asked) == 3


def test_row_11_each_value_is_asked_for_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for value in ("0", "-1", "0", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        counts.append(query.device_count())
    assert counts == [1, 0, 1, 0]
    assert machine.asked == ["0", "-1"]


def test_row_11_what_is_in_use_stays_whatever_was_known_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the first answer, nor one for the new value: that which CUDA was first used under."""
    for value in ("-1", "0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        query.state()
    machine.used = True
    for value in ("-1", "7"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        with pytest.warns(RuntimeWarning, match="has no effect any more"):
            assert query.state() == READY
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # said once
            assert query.device_count() == 1
    assert machine.asked == ["-1", "0"]


@pytest.mark.parametrize("first", [None, "0"])
def test_row_11_what_is_in_use_is_what_is_asked_about(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, first: str | None
) -> None:
    """Whether it is noticed by that question or by an earlier one; again, or with a context."""
    if first is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", first)
    query.state()
    machine.used = True
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.warns(RuntimeWarning, match=f"from {first!r} to '-1' after"):
        assert query.state(fresh=True) == READY
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert query.state() == READY
        assert query.state(fresh=True) == READY
        assert query.state(deep=True) == replace(READY, deep=True)
        assert query.state(deep=True, fresh=True) == replace(READY, deep=True)
        assert query.state() == READY
        assert query.device_count() == 1
    assert machine.asked == [first] * 5


def test_row_11_the_first_value_may_come_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its effect, so nothing is said of it; another one is said to have none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    query.state()
    machine.used = True
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.warns(RuntimeWarning, match="from '0' to '-1' after"):
        query.state()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert query.state() == READY
        assert query.state(fresh=True) == READY
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.warns(RuntimeWarning, match="from '0' to None after"):
        assert query.state() == READY
    assert machine.asked == ["0", "0"]


@pytest.mark.usefixtures("machine")
def test_a_child_is_given_the_value_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    expected = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    assert query._environment(None) == expected
    assert query._environment(b"0") == {**expected, "CUDA_VISIBLE_DEVICES": "0"}
    assert query._environment("1") == {**expected, "CUDA_VISIBLE_DEVICES": "1"}


def test_it_never_raises(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    query.state()
    machine.used = True
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert query.state() == READY

    def fails(environment: dict[str, str], *, deep: bool) -> DeviceState:
        del environment
        raise MemoryError(str(deep))

    monkeypatch.setattr(query, "_ask", fails)
    state = query.state(fresh=True)
    assert (state.status, state.reason) == (
        Status.UNKNOWN,
        "the driver could not be asked: MemoryError: False",
    )


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("user", "named"), [(4711, "process 4711"), (0, "the parent process")])
def test_row_41_a_child_of_a_process_that_used_cuda(
    monkeypatch: pytest.MonkeyPatch, user: int, named: str
) -> None:
    monkeypatch.setattr(use, "used_before_fork", lambda: user)
    state = query.state()
    assert state.status is Status.FORKED
    assert state.reason.startswith(f"CUDA was first used in {named} before it forked process ")
    assert "spawn" in state.next_step
    assert query.device_count() == 0


def test_row_41_who_used_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "watch", use._Watch())
    assert use.used_before_fork() is None
    use.watch.user = os.getpid()  # this process forked others
    assert use.used_before_fork() is None
    use.watch.user = 4711
    assert use.used_before_fork() == 4711


def test_a_driver_that_has_not_answered_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even to find out whether it is in use: it may be one that crashes."""

    def called() -> bool:
        raise AssertionError

    monkeypatch.setattr(use, "_driver_says_so", called)
    assert not use.is_used(sound=False)
    with pytest.raises(AssertionError):
        use.is_used(sound=True)
