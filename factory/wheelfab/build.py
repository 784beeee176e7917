"""Runs a plan: what is stored is reused, what fails leaves its log, the other cells go on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from wheelfab import console, flock, machine, run
from wheelfab.errors import FactoryError
from wheelfab.inputs import compiler_listed
from wheelfab.maker import Folders, Maker, sweep
from wheelfab.plan import Action, ActionKind, Plan
from wheelfab.records import aside, file_digest, read_json, write_json
from wheelfab.slots import Slots
from wheelfab.store import Store
from wheelfab.variant import Cell, Excluded

__all__ = ["CellResult", "CellState", "Folders", "build", "missing_actions", "place_wheel"]

_NEEDED_DISK = 1 * machine.GIB


class CellState(StrEnum):
    """How a cell of the matrix ended; *missing* is a success that left no wheel."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """What became of one cell: its wheel, or the reason why there is none."""

    cell: str
    state: CellState
    wheel: Path | None = None
    reason: str = ""
    fresh: bool = False


@dataclass(kw_only=True, slots=True)
class _State:
    done: dict[str, Path] = field(default_factory=dict)
    failed: dict[str, FactoryError] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)


def build(plan: Plan, store: Store, *, excluded: Sequence[Excluded] = ()) -> tuple[CellResult, ...]:
    """Build every cell of ``plan`` into ``dist/`` and write ``build/<cell>/build.json`` for each.

    Debug twins go to ``dist/debug/`` and ``build/<cell>-debug/``.

    A failed action fails the cells that need it; the others go on. Never raises for one of them.
    """
    folders = Folders(root=plan.source.root)
    actions = Store(folders.build / "store")
    sweep(folders.work)
    with Slots(machine.jobs()) as slots:
        state = _execute(plan, Maker(plan, folders, store, actions, slots), actions)
    sweep(folders.work)  # a compiler of a killed build may have gone on after the first one
    results = [_finish(plan, cell, folders, state) for cell in plan.cells]
    skipped = [
        CellResult(cell=item.id, state=CellState.SKIPPED, reason=item.reason) for item in excluded
    ]
    for result in skipped:
        write_json(
            folders.record(result.cell),
            {"cell": result.cell, "state": result.state, "wheel": None, "reason": result.reason},
        )
    return (*results, *skipped)


def missing_actions(plan: Plan, actions: Store) -> tuple[Action, ...]:
    """The actions that a build of ``plan`` has to run, in order: nothing stored is made again."""
    wanted: set[str] = set()
    for action in reversed(plan.actions):
        asked = action.kind is ActionKind.WHEEL or action.id in wanted
        if asked and actions.find(action.kind, action.key) is None:
            wanted.update((action.id, *action.needs))
        else:
            wanted.discard(action.id)
    return tuple(action for action in plan.actions if action.id in wanted)


def _execute(plan: Plan, maker: Maker, actions: Store) -> _State:
    """Run what is missing on as many threads as the machine carries, needs before users."""
    state = _State()
    missing = missing_actions(plan, actions)
    for action in plan.actions:
        found = None if action in missing else actions.find(action.kind, action.key)
        if found is not None:
            state.done[action.id] = found
    if not missing:
        return state
    machine.require_disk(plan.source.root, _NEEDED_DISK)
    maker.fetch_tools()
    waiting, running = list(missing), dict[Future[Path], Action]()
    pool = ThreadPoolExecutor(max_workers=maker.slots.count)
    try:
        with console.progress("build", len(missing)) as advance:
            shown = 0
            while waiting or running:
                waiting = _start_ready(waiting, running, state, pool, maker)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    _collect(running.pop(future), future, state)
                finished = len(missing) - len(waiting) - len(running)
                advance(finished - shown)
                shown = finished
    except BaseException:
        flock.interrupt()
        maker.slots.stop()
        run.stop_all()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return state


def _start_ready(
    waiting: list[Action],
    running: dict[Future[Path], Action],
    state: _State,
    pool: ThreadPoolExecutor,
    maker: Maker,
) -> list[Action]:
    """Start every action whose needs are there; return those that still wait, in order."""
    left = []
    for action in waiting:  # in the plan's order: an action comes after all that it needs
        broken = next((need for need in action.needs if need in state.failed), None)
        if broken is not None:
            state.failed[action.id] = state.failed[broken]
        elif all(need in state.done for need in action.needs):
            needs = {need: state.done[need] for need in action.needs}
            running[pool.submit(maker.make, action, needs)] = action
        else:
            left.append(action)
    return left


def _collect(action: Action, future: Future[Path], state: _State) -> None:
    try:
        state.done[action.id] = future.result()
        state.ran.add(action.id)
    except FactoryError as error:
        state.failed[action.id] = error
        console.error(f"{action.id}: {error}")


def _finish(plan: Plan, cell: Cell, folders: Folders, state: _State) -> CellResult:
    """Put the cell's wheel into its place and write its record, or write why there is none."""
    action = plan.wheel(cell)
    base = {"cell": cell.id, "wheel": None, "plan": action.key}
    if action.id in state.failed:
        reason = str(state.failed[action.id])
        write_json(folders.record(cell.id), {**base, "state": CellState.FAILED, "reason": reason})
        return CellResult(cell=cell.id, state=CellState.FAILED, reason=reason)
    result = state.done.get(action.id)
    wheel = next(iter(sorted(result.glob("*.whl"))), None) if result else None
    if wheel is None or result is None:
        reason = "the build said it succeeded, but left no wheel"
        write_json(folders.record(cell.id), {**base, "state": CellState.MISSING, "reason": reason})
        return CellResult(cell=cell.id, state=CellState.MISSING, reason=reason)
    fresh = action.id in state.ran
    return place_wheel(plan, cell, wheel, read_json(result / "_build.json"), fresh=fresh)


def place_wheel(
    plan: Plan, cell: Cell, wheel: Path, build_record: object, *, fresh: bool
) -> CellResult:
    """Put a finished wheel of ``cell`` into its place and write the record of its build."""
    folders = Folders(root=plan.source.root)
    folders.work.mkdir(parents=True, exist_ok=True)
    placed = _place(wheel, folders.wheels(cell), folders.work)
    record = {
        "cell": cell.id,
        "plan": plan.wheel(cell).key,
        "state": CellState.OK,
        "wheel": placed.name,
        "sha256": file_digest(placed),
        "size": placed.stat().st_size,
        "requires_torch": str(cell.pin.requirement),
        "run_on": [str(release) for release in cell.pin.run_on],
        "compiler_locked": compiler_listed(plan.locked, build_record),
        "build": build_record,
        "reason": "",
    }
    write_json(folders.record(cell.id), record)
    return CellResult(cell=cell.id, state=CellState.OK, wheel=placed, fresh=fresh)


def _place(wheel: Path, folder: Path, work: Path) -> Path:
    """Copy a finished wheel to ``folder`` unless the same lies there; it appears whole."""
    target = folder / wheel.name
    if target.exists() and file_digest(target) == file_digest(wheel):
        return target
    with aside(target, folder=work) as part:
        shutil.copyfile(wheel, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
    return target
