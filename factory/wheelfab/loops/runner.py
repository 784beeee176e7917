"""Runs loads: fresh interpreters in parallel over the cores, and loads forked from one process."""

from __future__ import annotations

import os
import selectors
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


from wheelfab.errors import HarnessError
from wheelfab.loops.judge import Event, EventKind, Evidence, Load, ending_of, judge, parse_event
from wheelfab.model import LoadStage
from wheelfab.records import write_json
from wheelfab.run import start, stop, tool_environment


CHILD = Path(__file__).with_name("load.py")
_TAIL = 8192  # bytes of stderr kept of each process
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


def run_fresh(
    target: Target, count: int, jobs: int, *, on_load: Callable[[], object] = lambda: None
) -> tuple[Load, ...]:
    """Load ``count`` times, each in a new interpreter, ``jobs`` at a time.

    ``on_load`` is called as each load ends. Raises ``HarnessError`` when the loop itself breaks.
    """
    _require(target, count, jobs)
    loads = []
    with _work_folder() as folder, _Crew() as crew:
        plan = _write_plan(folder, target, {})
        started = 0
        while started < count or len(crew):
            while started < count and len(crew) < jobs:
                crew.start(_Child(target, folder, (str(plan), str(started)), index=started))
                started += 1
            for child in crew.ended():
                loads.append(_judge_fresh(target, child, folder))
                on_load()
    return tuple(sorted(loads, key=lambda load: load.load))


def run_forked(
    target: Target, count: int, jobs: int, *, on_load: Callable[[], object] = lambda: None
) -> tuple[Load, ...]:
    """Load ``count`` times, each in a fork of one process that has imported torch, ``jobs`` at a time.

    Raises ``HarnessError`` when the loop itself breaks, above all when the forking process dies.
    """
    _require(target, count, jobs)

    def on_event(event: Event) -> None:
        if event.kind is EventKind.END:
            on_load()

    with _work_folder() as folder, _Crew() as crew:
        extra = {"preload": target.preload, "count": count, "jobs": jobs}
        plan = _write_plan(folder, target, extra | {"timeout": target.timeout})
        parent = _Child(target, folder, (str(plan),), forks=count, on_event=on_event)
        crew.start(parent)
        while len(crew):
            for child in crew.ended():
                loads = _judge_forked(target, child, count, folder)
        return loads


class _Role(StrEnum):
    REPORT = "report"
    STDERR = "stderr"
    END = "end"


class _Child:
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
        self.pidfd = os.pidfd_open(self.process.pid)
        self.deadline = time.monotonic() + self.limit

    @property
    def descriptors(self) -> dict[_Role, int]:
        assert self.process.stderr is not None
        stderr = self.process.stderr.fileno()
        return {_Role.REPORT: self.report, _Role.STDERR: stderr, _Role.END: self.pidfd}

    def read(self, role: _Role) -> bool:
        """Take what a pipe holds; False when it has come to its end or holds nothing now."""
        try:
            piece = os.read(self.descriptors[role], _PIECE)
        except BlockingIOError:
            return False
        if role is _Role.STDERR:
            self.tail = (self.tail + piece)[-_TAIL:]
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
        for role in (_Role.REPORT, _Role.STDERR):
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


class _Crew:
    """The processes that run now; leaving it kills them all, whatever happened."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: set[_Child] = set()

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.close()
        self._selector.close()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, child: _Child) -> None:
        """Watch over ``child`` from now on."""
        self._running.add(child)
        for role, descriptor in child.descriptors.items():
            self._selector.register(descriptor, selectors.EVENT_READ, (child, role))

    def ended(self) -> Iterator[_Child]:
        """Wait until something happens; gives the processes that have ended, if any."""
        first = min(child.deadline for child in self._running)
        ready = self._selector.select(max(0.0, first - time.monotonic()))
        over = []
        for key, _ in ready:
            child, role = key.data
            if role is _Role.END:
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


def _judge_fresh(target: Target, child: _Child, folder: Path) -> Load:
    evidence = Evidence(
        load=child.index,
        events=tuple(child.events),
        started=child.started,
        ended=child.ended,
        returncode=child.returncode,
        timed_out=child.timed_out,
        stderr=child.tail.decode(errors="replace"),
        stack=_read_tail(folder / f"{child.index}.stack"),
    )
    return judge(target.names, evidence)


def _judge_forked(target: Target, child: _Child, count: int, folder: Path) -> tuple[Load, ...]:
    by_load: dict[int, list[Event]] = defaultdict(list)
    for event in child.events:
        by_load[event.load].append(event)
    ends = sum(event.kind is EventKind.END for event in child.events)
    if child.returncode != 0 or child.timed_out or ends != count:
        ending = "silent for too long" if child.timed_out else ending_of(child.returncode)
        last_words = child.tail.decode(errors="replace") + _read_tail(folder / "fork.stack")
        raise HarnessError(
            f"the process that forks the loads ended ({ending}) after {ends} of {count}: "
            f"{last_words.strip() or 'nothing on stderr'}",
            where="import loop",
            next_step="look at the fresh loads first; run them alone with --forked 0",
        )
    return tuple(
        judge(target.names, _forked_evidence(index, by_load[index], folder))
        for index in range(count)
    )


def _forked_evidence(index: int, events: Sequence[Event], folder: Path) -> Evidence:
    by_kind = {event.kind: event for event in events}
    fork, end = by_kind[EventKind.FORK], by_kind[EventKind.END]
    outside = (EventKind.READY, EventKind.FORK, EventKind.END)
    assert end.returncode is not None
    return Evidence(
        load=index,
        events=tuple(event for event in events if event.kind not in outside),
        started=fork.at,
        ended=end.at,
        returncode=end.returncode,
        timed_out=end.timed_out,
        stderr=_read_tail(folder / f"{index}.stderr"),
        stack=_read_tail(folder / f"{index}.stack"),
    )


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return file.read(_TAIL).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _require(target: Target, count: int, jobs: int) -> None:
    if not CHILD.is_file():
        raise HarnessError("the child of the loop is missing", where=str(CHILD))
    if not target.python.is_file():
        raise HarnessError("no interpreter there", where=str(target.python))
    if count < 1 or jobs < 1 or not target.stages:
        raise HarnessError(
            f"{count} loads of {len(target.stages)} stages, {jobs} at a time, prove nothing",
            where="import loop",
        )


def _write_plan(folder: Path, target: Target, extra: Mapping[str, object]) -> Path:
    stages = [(stage.stage, stage.run) for stage in target.stages]
    path = folder / "plan.json"
    write_json(path, {"schema": 1, "folder": str(folder), "stages": stages, **extra})
    return path


@contextmanager
def _work_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wheelfab-loop-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
