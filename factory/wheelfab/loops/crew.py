"""The processes of a loop: started, listened to, ended in time, and never left behind."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from wheelfab.errors import HarnessError
from wheelfab.loops.judge import Event, parse_event
from wheelfab.model import LoadStage
from wheelfab.run import start, stop, tool_environment

CHILD = Path(__file__).with_name("load.py")
TAIL = 8192  # bytes of stderr kept of each process
_PIECE = 1 << 16
_OTHER_EVENTS = 6  # more than a load sends besides one a stage
_GRACE = 1.0  # seconds between SIGABRT, which makes faulthandler speak, and SIGKILL
_MARGIN = 30.0  # seconds that the forking process may stay silent over a load's own time limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What is loaded: the interpreter of a clean environment, the stages, seconds per load."""

    python: Path
    stages: tuple[LoadStage, ...]
    timeout: float = 120.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages in their order."""
        return tuple(stage.stage for stage in self.stages)

    @property
    def preload(self) -> str:
        """What the forking process runs once: torch, when some stage needs it."""
        return "import torch" if any(stage.needs_torch for stage in self.stages) else ""


def load_environment(folder: Path) -> dict[str, str]:
    """The environment of a load: nothing inherited but PATH, home in ``folder``, one thread.

    One thread, passive when idle: loads that run side by side would otherwise fight for the cores.
    """
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return tool_environment(
        {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "OMP_WAIT_POLICY": "PASSIVE",
            **dict.fromkeys(threads, "1"),
        }
    )


class Role(StrEnum):
    """What a descriptor of a child tells."""

    REPORT = "report"
    STDERR = "stderr"
    END = "end"


class Child:
    """A running process of the loop: its report so far, the end of its stderr, its time limit."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        arguments: Sequence[str],
        *,
        index: int = 0,
        forks: int = 0,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Start load ``index``, or with ``forks`` the process that forks so many loads."""
        self.index, self.on_event = index, on_event
        self.renewed = forks > 0  # each sign of life of a forking process renews its time limit
        self.limit = target.timeout + (_MARGIN if forks else 0.0)
        self.most_events = (len(target.stages) + _OTHER_EVENTS) * max(1, forks)
        self.events: list[Event] = []
        self.tail = b""
        self.timed_out = False
        self.returncode = self.ended = 0
        self._rest = b""
        self._closed = False
        plan, *others = arguments
        self.report, write = os.pipe()
        self.started = time.monotonic_ns()
        try:
            self.process = start(
                (str(target.python), "-I", str(CHILD), plan, str(write), *others),
                env=load_environment(folder),
                cwd=folder,
                pass_fds=(write,),
            )
        except OSError as error:
            os.close(self.report)
            raise HarnessError(
                f"cannot start a load: {error}",
                where=str(target.python),
                next_step="remove the loop's environment and make it again",
            ) from error
        finally:
            os.close(write)
        self.stderr = self.process.stderr.fileno() if self.process.stderr is not None else -1
        self.pidfd = os.pidfd_open(self.process.pid)
        self.deadline = time.monotonic() + self.limit

    @property
    def descriptors(self) -> dict[Role, int]:
        """What to wait for, by what it tells."""
        return {Role.REPORT: self.report, Role.STDERR: self.stderr, Role.END: self.pidfd}

    def read(self, role: Role) -> bool:
        """Take what a pipe holds; False when it has come to its end or holds nothing now."""
        try:
            piece = os.read(self.descriptors[role], _PIECE)
        except BlockingIOError:
            return False
        if role is Role.STDERR:
            self.tail = (self.tail + piece)[-TAIL:]
        else:
            self._take(piece)
        return bool(piece)

    def _take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _PIECE:
            parse_event(self._rest)
        for line in lines:
            event = parse_event(line)
            self.events.append(event)
            self.on_event(event)
        if len(self.events) > self.most_events:
            raise HarnessError(f"more than {self.most_events} events", where="import loop")
        if piece and self.renewed and not self.timed_out:
            self.deadline = time.monotonic() + self.limit

    def overdue(self) -> None:
        """Its time is over: first let it show its stack, then kill its group."""
        if self.timed_out:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            os.kill(self.process.pid, signal.SIGABRT)
        self.timed_out = True
        self.deadline = time.monotonic() + _GRACE

    def finish(self) -> None:
        """It has ended: read what is left in its pipes, end its group, check the report's end."""
        self.ended = time.monotonic_ns()
        for role in (Role.REPORT, Role.STDERR):
            os.set_blocking(self.descriptors[role], False)
            while self.read(role):
                pass
        self.close()
        if self._rest:
            parse_event(self._rest)

    def close(self) -> None:
        """Kill what is left of it and give its descriptors back; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        self.returncode = stop(self.process)
        os.close(self.report)
        os.close(self.pidfd)


class Crew:
    """The processes that run now; leaving it kills them all, whatever happened."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: set[Child] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.close()
        self._selector.close()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, child: Child) -> None:
        """Watch over ``child`` from now on."""
        self._running.add(child)
        for role, descriptor in child.descriptors.items():
            self._selector.register(descriptor, selectors.EVENT_READ, (child, role))

    def ended(self) -> Iterator[Child]:
        """Wait until something happens; gives the processes that have ended, if any."""
        first = min(child.deadline for child in self._running)
        ready = self._selector.select(max(0.0, first - time.monotonic()))
        over = []
        for key, _ in ready:
            child, role = key.data
            if role is Role.END:
                over.append(child)
            elif not child.read(role):
                self._selector.unregister(key.fd)
        for child in over:
            for descriptor in child.descriptors.values():
                if descriptor in self._selector.get_map():
                    self._selector.unregister(descriptor)
            child.finish()
            self._running.discard(child)
            yield child
        for child in self._running:
            if child.deadline <= time.monotonic():
                child.overdue()
