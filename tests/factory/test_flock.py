"""Locks exclude threads too, say who holds them, time out, and leave no file."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wheelfab import flock
from wheelfab.errors import StoreError


@contextmanager
def held_elsewhere(path: Path) -> Iterator[None]:
    """The lock held by another thread while the block runs."""
    ready, done = threading.Event(), threading.Event()

    def holder() -> None:
        with flock.hold(path, what="it", timeout=5):
            ready.set()
            done.wait(10)

    thread = threading.Thread(target=holder)
    thread.start()
    assert ready.wait(5)
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_the_holder_is_recorded_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.lock"
    with flock.hold(path, what="it", timeout=1):
        owner = flock.owner_of(path)
        assert owner is not None
        assert owner.pid == os.getpid()
        assert sys.argv[0] in owner.command
        assert f"pid {owner.pid} on {owner.host} since {owner.since}" in str(owner)
    assert not path.exists()
    assert flock.owner_of(path) is None


def test_waiting_too_long_names_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with held_elsewhere(path):
        assert flock.is_held(path)
        with (
            pytest.raises(StoreError, match=f"k/a: still locked .* held by pid {os.getpid()} on"),
            flock.hold(path, what="k/a", timeout=0.1),
        ):
            pytest.fail("it is held elsewhere")
    assert not flock.is_held(path)


def test_a_note_says_who_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flock, "_NOTE_AFTER", 0.05)
    path = tmp_path / "a.lock"
    with (
        held_elsewhere(path),
        pytest.raises(StoreError),
        flock.hold(path, what="k/a", timeout=0.4),
    ):
        pytest.fail("it is held elsewhere")
    said = capsys.readouterr().err
    assert said.count("waiting for k/a: held by pid") == 1


def test_a_waiter_gets_the_lock_when_its_file_was_removed_under_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    inside, most = 0, 0
    guard = threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        for _ in range(10):
            with flock.hold(path, what="it", timeout=20):
                with guard:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_a_file_without_a_holder_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("left by a build that was killed")
    assert not flock.is_held(path)
    assert flock.owner_of(path) is None
    with flock.hold(path, what="it", timeout=0.2):
        assert flock.owner_of(path) is not None


def test_an_interrupt_ends_every_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flock, "_interrupted", threading.Event())
    path = tmp_path / "a.lock"
    with held_elsewhere(path):
        flock.interrupt()
        with pytest.raises(StoreError), flock.hold(path, what="it", timeout=60):
            pytest.fail("it is held elsewhere")


def test_the_lock_is_free_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with pytest.raises(KeyboardInterrupt), flock.hold(path, what="it", timeout=1):
        raise KeyboardInterrupt
    with flock.hold(path, what="it", timeout=0.2):
        pass
