"""What a command in a container prints, and how it ended: docker's frames and the keeper's line."""

from __future__ import annotations

import io
import re
import select
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MOST = 8 << 20  # bytes kept of each stream: its end
_PIECE = 1 << 16
_HEADER = 8  # bytes before each frame: 1 or 2 for stdout or stderr, 3 of nothing, 4 of length
_LINE = re.compile(rb"\0keeper (exit|signal|timeout|errno) (\d+) (\d+)\n\Z")
_LONGEST_LINE = 128
_SIGNALS = 64


class Socket(Protocol):
    """What docker's SDK gives for a stream."""

    def fileno(self) -> int:
        """The descriptor to wait on."""

    def read(self, size: int, /) -> bytes | None:
        """At most ``size`` bytes; none at the end."""

    def close(self) -> None:
        """Give the descriptor back."""


class Kind(StrEnum):
    """How the keeper says that a program ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    ERRNO = "errno"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The keeper's line: how the program ended, and its seconds."""

    kind: Kind
    number: int
    seconds: float

    @property
    def returncode(self) -> int | None:
        """As Popen tells it, None for a time-out."""
        match self.kind:
            case Kind.TIMEOUT:
                return None
            case Kind.SIGNAL:
                return -self.number
            case _:
                return self.number


class Tail:
    """The end of a stream: ``most`` bytes are kept, the rest is counted."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._kept, self._left_out = most, bytearray(), 0

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._kept += piece
        if len(self._kept) > 2 * self._most:
            self._cut()

    def take_ending(self) -> Ending | None:
        """The keeper's line, taken off the end; None when there is none."""
        found = _LINE.search(self._kept, max(0, len(self._kept) - _LONGEST_LINE))
        if found is None:
            return None
        kind, number, nanoseconds = found.groups()
        del self._kept[found.start() :]
        return Ending(
            kind=Kind(kind.decode()), number=int(number), seconds=int(nanoseconds) / 1_000_000_000
        )

    def text(self) -> str:
        """What was kept, with a note of how much was not."""
        self._cut()
        note = f"[{self._left_out} bytes left out]\n" if self._left_out else ""
        return note + self._kept.decode(errors="replace")

    def _cut(self) -> None:
        over = max(0, len(self._kept) - self._most)
        del self._kept[:over]
        self._left_out += over


class Demultiplexer:
    """Takes docker's frames apart, however they were cut on their way."""

    def __init__(self, most: int = MOST) -> None:
        self.stdout, self.stderr = Tail(most), Tail(most)
        self._header = b""
        self._left = 0
        self._stream = self.stdout

    def feed(self, piece: bytes) -> None:
        """Take the next bytes from the engine."""
        view = io.BytesIO(piece)
        while True:
            if self._left:
                part = view.read(self._left)
                self._stream.add(part)
                self._left -= len(part)
            else:
                part = view.read(_HEADER - len(self._header))
                self._header += part
                if len(self._header) == _HEADER:
                    self._stream = self.stderr if self._header[0] == 2 else self.stdout
                    self._left = int.from_bytes(self._header[4:], "big")
                    self._header = b""
            if not part:
                return

    def ending(self) -> Ending | None:
        """How the keeper says it ended, taken off stderr; None when the keeper was killed."""
        return self.stderr.take_ending()


def engine_returncode(code: int | None) -> int | None:
    """As Popen tells it, from the engine's exit code of a keeper that was killed itself."""
    return 128 - code if code is not None and 128 < code <= 128 + _SIGNALS else code


def receive(socket: Socket, into: Demultiplexer, *, timeout: float) -> bool:
    """Read ``socket`` to its end; False when it did not come within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        piece = socket.read(_PIECE)
        if not piece:
            return True
        into.feed(piece)
    return False
