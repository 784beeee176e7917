"""Runs loads: fresh interpreters in parallel over the cores, and loads forked from one process."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wheelfab.errors import HarnessError
from wheelfab.loops.crew import CHILD, TAIL, Child, Crew, Target
from wheelfab.loops.judge import Event, EventKind, Evidence, Load, ending_of, judge
from wheelfab.records import write_json


def run_fresh(
    target: Target, count: int, jobs: int, *, on_load: Callable[[], object] = lambda: None
) -> tuple[Load, ...]:
    """Load ``count`` times, each in a new interpreter, ``jobs`` at a time.

    ``on_load`` is called as each load ends. Raises ``HarnessError`` when the loop itself breaks.
    """
    _require(target, count, jobs)
    loads = []
    with _work_folder() as folder, Crew() as crew:
        plan = _write_plan(folder, target, {})
        started = 0
        while started < count or len(crew):
            while started < count and len(crew) < jobs:
                crew.start(Child(target, folder, (str(plan), str(started)), index=started))
                started += 1
            for child in crew.ended():
                loads.append(_judge_fresh(target, child, folder))
                on_load()
    return tuple(sorted(loads, key=lambda load: load.load))


def run_forked(
    target: Target, count: int, jobs: int, *, on_load: Callable[[], object] = lambda: None
) -> tuple[Load, ...]:
    """Load ``count`` times, each in a fork of a process that has imported torch, ``jobs`` at once.

    Raises ``HarnessError`` when the loop itself breaks, above all when the forking process dies.
    """
    _require(target, count, jobs)

    def on_event(event: Event) -> None:
        if event.kind is EventKind.END:
            on_load()

    with _work_folder() as folder, Crew() as crew:
        extra = {"preload": target.preload, "count": count, "jobs": jobs}
        plan = _write_plan(folder, target, extra | {"timeout": target.timeout})
        parent = Child(target, folder, (str(plan),), forks=count, on_event=on_event)
        crew.start(parent)
        while len(crew):
            for child in crew.ended():
                loads = _judge_forked(target, child, count, folder)
        return loads


def _judge_fresh(target: Target, child: Child, folder: Path) -> Load:
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


def _judge_forked(target: Target, child: Child, count: int, folder: Path) -> tuple[Load, ...]:
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
    return Evidence(
        load=index,
        events=tuple(event for event in events if event.kind not in outside),
        started=fork.at,
        ended=end.at,
        returncode=int(end.returncode or 0),
        timed_out=end.timed_out,
        stderr=_read_tail(folder / f"{index}.stderr"),
        stack=_read_tail(folder / f"{index}.stack"),
    )


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return file.read(TAIL).decode(errors="replace")
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
