"""Locks between processes: flock, which a killed holder lets go, and a record of who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from wheelfab.errors import StoreError

_POLL = 0.05  # seconds between tries
_NOTE_AFTER = 2.0  # seconds of silent waiting
_LONGEST_RECORD = 4096
_LONGEST_COMMAND = 300
_interrupted = threading.Event()


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Who holds a lock. ``since`` is local time."""

    pid: int
    host: str
    command: str
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {self.since} ({self.command})"


@contextmanager
def hold(path: Path, *, what: str, timeout: float) -> Iterator[None]:
    """Hold the lock ``path`` (made if need be, removed at the end) while the block runs.

    Threads of one process exclude each other too. After 2 s of waiting a note says who holds it.

    Raises ``StoreError`` naming the holder after ``timeout`` seconds, or after ``interrupt()``.
    """
    descriptor = _acquire(path, what, timeout)
    try:
        _write_owner(descriptor)
        yield
    finally:
        # Unlinked while it is held: whoever waits sees that its file is gone and opens the new one.
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        os.close(descriptor)


def owner_of(path: Path) -> Owner | None:
    """Who wrote the record in the lock file ``path``; it may have died since."""
    try:
        with path.open("rb") as file:
            return Owner(**json.loads(file.read(_LONGEST_RECORD)))
    except (OSError, ValueError, TypeError):
        return None


def is_held(path: Path) -> bool:
    """Whether a live process holds the lock ``path``; a file that a dead one left is not held."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


def interrupt() -> None:
    """End every wait of this process with ``StoreError``: for the one who handles Ctrl-C."""
    _interrupted.set()


def _acquire(path: Path, what: str, timeout: float) -> int:
    started = time.monotonic()
    noted = False
    while True:
        descriptor = _open(path)
        if _try(descriptor) and _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)
        waited = time.monotonic() - started
        if waited > timeout or _interrupted.is_set():
            raise StoreError(
                f"still locked after {waited:.0f} s, held by {_holder(path)}",
                where=what,
                next_step="wait for that process or end it",
            )
        if waited > _NOTE_AFTER and not noted:
            from wheelfab import console

            console.note(f"waiting for {what}: held by {_holder(path)}")
            noted = True
        time.sleep(_POLL)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the file that we locked is the one that others would open now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_owner(descriptor: int) -> None:
    owner = Owner(
        pid=os.getpid(),
        host=socket.gethostname(),
        command=" ".join(sys.argv)[:_LONGEST_COMMAND],
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
    )
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)


def _holder(path: Path) -> str:
    owner = owner_of(path)
    return str(owner) if owner else "an unknown process"
