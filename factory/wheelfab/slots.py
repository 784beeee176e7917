"""The compile jobs of a whole build, one budget for all that runs at once.

Every action takes one; the Ninja that it starts asks for more by the protocol of GNU make's
jobserver, a pipe with a byte for each job that is free.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Self

from wheelfab.errors import InfrastructureError

_POLL = 0.2  # seconds between looks at whether the build was stopped


class Slots:
    """``count`` compile jobs. A context manager: at its end the pipe is closed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._changed = Condition()
        self._running, self._alone, self._stopped = 0, False, False
        self._free(count)
        # opened by this name, so that there is no file to be left by a build that is killed
        pipe = f"/proc/{os.getpid()}/fd/{self._read}"
        self.environment: Mapping[str, str] = {
            "MAKEFLAGS": f"-j{count} --jobserver-auth=fifo:{pipe}"
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        os.close(self._read)
        os.close(self._write)

    @contextmanager
    def one(self) -> Iterator[None]:
        """A job of the budget, as soon as one is free; raises when the build was stopped."""
        with self._changed:
            self._wait(lambda: not self._alone)
            self._running += 1
        try:
            with self._taken():
                yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def half(self) -> Iterator[int]:
        """Half of the budget, at least one job, while nothing else runs; gives how many.

        Afterwards all are free again, those of a killed Ninja too, which gives none back.
        """
        with self._changed:
            self._wait(lambda: not self._alone)
            self._alone = True
        try:
            with self._changed:
                self._wait(lambda: self._running == 0)
            jobs = max(1, self.count // 2)
            self._refill(jobs)
            with self._taken():
                yield jobs
        finally:
            self._refill(self.count)
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Let nobody wait any longer: whoever does gets an error."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait(self, ready: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._stopped or ready())
        self._require_going()

    @contextmanager
    def _taken(self) -> Iterator[None]:
        token = b""
        while not token:
            self._require_going()
            select.select([self._read], [], [], _POLL)
            with suppress(BlockingIOError):  # a Ninja was faster
                token = os.read(self._read, 1)
        try:
            yield
        finally:
            self._free(1)

    def _require_going(self) -> None:
        if self._stopped:
            raise InfrastructureError("the build was stopped")

    def _refill(self, count: int) -> None:
        with suppress(BlockingIOError):
            while os.read(self._read, self.count):
                pass
        self._free(count)

    def _free(self, count: int) -> None:
        os.write(self._write, b"+" * count)
