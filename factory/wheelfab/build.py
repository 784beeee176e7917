"""Runs a plan: what is stored is reused, what fails leaves its log, the other cells go on."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfab import console, lock, machine, run
from wheelfab.diagnosis import NO_MEMORY, compile_flags, failure
from wheelfab.errors import FactoryError, InfrastructureError, ToolchainError
from wheelfab.model import Profile
from wheelfab.plan import Action, ActionKind, Plan, python
from wheelfab.records import aside, file_digest, read_json, write_json
from wheelfab.steps import fill
from wheelfab.store import Store
from wheelfab.toolchain.torch import TorchTree, torch_tree
from wheelfab.toolchain.wheels import fetch_toolchain
from wheelfab.variant import Cell, Excluded

if TYPE_CHECKING:
    from wheelfab.compose import Parts

FLAGS = "flags.json"  # beside a part's libraries: what its compilers were told
_STEP_TIMEOUT = 3600.0
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """Where a build keeps what; all below the project's root."""

    root: Path

    @property
    def build(self) -> Path:
        """Records, logs, stored actions and work folders."""
        return self.root / "build"

    @property
    def dist(self) -> Path:
        """Finished wheels, and nothing else but the folder of their debug twins."""
        return self.root / "dist"

    @property
    def work(self) -> Path:
        """Half-made things: a folder or file an attempt, named after the process that makes it."""
        return self.build / "work"

    def log(self, action: Action) -> Path:
        """The log of an action: commands, output, seconds; kept when the action fails."""
        return self.build / "logs" / f"{action.id.replace(':', '-')}.log"

    def wheels(self, cell: Cell) -> Path:
        """Where a cell's wheel lies; a twin's version is the higher one, so that it lies apart."""
        return self.dist / "debug" if cell.profile is Profile.DEBUG else self.dist

    def record(self, cell: str) -> Path:
        """The record that a build leaves of a cell."""
        return self.build / cell / "build.json"


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
    _sweep(folders.work)
    state = _execute(plan, _Maker(plan, folders, store, actions), actions)
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


def _execute(plan: Plan, maker: _Maker, actions: Store) -> _State:
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
    waiting, running = list(missing), dict[Future[Path], Action]()
    pool = ThreadPoolExecutor(max_workers=machine.jobs())
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
        lock.interrupt()
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
    maker: _Maker,
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


class _Maker:
    """Makes the result of one action in the store of actions."""

    def __init__(self, plan: Plan, folders: Folders, store: Store, actions: Store) -> None:
        self.plan, self.folders, self.store, self.actions = plan, folders, store, actions

    def make(self, action: Action, needs: Mapping[str, Path]) -> Path:
        """The stored result of ``action``, made now unless another process just did."""

        def into(out: Path) -> None:
            started = time.monotonic()
            console.step(action.id)
            self._make(action, needs, out)
            seconds = time.monotonic() - started
            console.note(f"{action.id}: {seconds:.1f} s")
            write_json(self.folders.build / "times" / f"{action.key}.json", {"seconds": seconds})

        return self.actions.entry(action.kind, action.key, into)

    def _make(self, action: Action, needs: Mapping[str, Path], out: Path) -> None:
        log = self.folders.log(action)
        log.unlink(missing_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folders.work))
        try:
            match action.kind:
                case ActionKind.DEVICE:
                    self._fetch_device_compiler(action)
                    self._run(action, {"out": str(out)}, log)
                case ActionKind.PART:
                    self._part(action, needs, out, work, log)
                case ActionKind.WHEEL:
                    from wheelfab.compose import make_wheel  # heavy, and not needed to reuse

                    parts = self._parts(action, needs)
                    cell, steps = self._cell(action), self._runner(action, log)
                    make_wheel(self.plan, cell, parts, out, work, run_steps=steps)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _fetch_device_compiler(self, action: Action) -> None:
        """Fetch it here, with the user's index and proxy: the step itself has no network."""
        variant = self._cell(action).variant
        if variant.cuda is not None:
            fetch_toolchain(self.store, variant.toolchain, variant.cuda)

    def _cell(self, action: Action) -> Cell:
        """A cell that the action is for; those that share it agree in all that it asks of one."""
        return next(cell for cell in self.plan.cells if cell.id in action.cells)

    def _part(
        self, action: Action, needs: Mapping[str, Path], out: Path, work: Path, log: Path
    ) -> None:
        device = work / "device"
        device.mkdir()
        for need, result in needs.items():
            if self.plan.action(need).kind is ActionKind.DEVICE:
                for fatbin in result.glob("*.fatbin"):
                    shutil.copy(fatbin, device)
        places = {need: str(result) for need, result in needs.items()}
        places |= {"out": str(out), "work": str(work), "device": str(device)}
        if action.pin is not None:
            places["torch"] = str(self._torch(action).path)
        self._run(action, places, log)
        write_json(out / FLAGS, compile_flags(_text(log)))

    def _runner(self, action: Action, log: Path) -> Callable[[Mapping[str, str]], None]:
        return lambda places: self._run(action, places, log)

    def _run(self, action: Action, places: Mapping[str, str], log: Path) -> None:
        """Run all steps; a compile that ran out of memory is tried once more at half the jobs."""
        jobs = machine.jobs()
        try:
            self._run_steps(action, places, log, jobs)
        except InfrastructureError:
            if jobs == 1 or action.kind is not ActionKind.PART or not NO_MEMORY.search(_text(log)):
                raise
            console.warn(f"{action.id}: out of memory with {jobs} jobs; again with {jobs // 2}")
            self._run_steps(action, places, log, jobs // 2)

    def _run_steps(self, action: Action, places: Mapping[str, str], log: Path, jobs: int) -> None:
        compiler = self.plan.compiler
        known = {
            "python": python(),
            "cxx": str(compiler.path),
            "cc": str(compiler.cc),
            "root": str(self.plan.source.root.resolve()),
            "jobs": str(jobs),
            **places,
        }
        for step in action.steps:
            environment = {"SOURCE_DATE_EPOCH": str(self.plan.source.epoch)}
            environment |= {"PYTHONPATH": str(Path(__file__).parent.parent)}
            environment |= {"WHEELFAB_STORE": str(self.store.root), "PATH": _path()}
            environment |= dict(step.env)
            done = run.run(
                fill(step.argv, known),
                env=run.tool_environment(environment),
                cwd=self.plan.source.root,
                timeout=_STEP_TIMEOUT,
                log=log,
            )
            if not done.ok:
                raise failure(action, done, log)

    def _torch(self, action: Action) -> TorchTree:
        cell = self._cell(action)
        tree = torch_tree(
            self.store,
            release=cell.pin.headers,
            index=cell.variant.torch_index,
            fallback=cell.variant.torch_fallback,
        )
        planned = any(arg == "-DWHEELFAB_CXX11_ABI=1" for step in action.steps for arg in step.argv)
        if tree.cxx11_abi != planned:
            raise ToolchainError(
                f"torch {tree.version} has CXX11 ABI {int(tree.cxx11_abi)}, "
                f"the facts say {int(planned)}",
                where=action.id,
                next_step="mend facts/torch.toml; the file is what counts",
            )
        return tree

    def _parts(self, action: Action, needs: Mapping[str, Path]) -> Parts:
        from wheelfab.compose import Parts

        binding = next(
            need for need in self.plan.closure(action) if need.pin and need.kind is ActionKind.PART
        )
        return Parts(results=tuple(needs.values()), torch=self._torch(binding), key=action.key)


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
    placed = _place(wheel, folders.wheels(cell), folders.work)
    record = {
        **base,
        "state": CellState.OK,
        "wheel": placed.name,
        "sha256": file_digest(placed),
        "size": placed.stat().st_size,
        "requires_torch": str(cell.pin.requirement),
        "run_on": [str(release) for release in cell.pin.run_on],
        "build": read_json(result / "_build.json"),
        "reason": "",
    }
    write_json(folders.record(cell.id), record)
    fresh = action.id in state.ran
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


def _sweep(work: Path) -> None:
    """Remove what processes left that were killed; each name begins with its process's number."""
    work.mkdir(parents=True, exist_ok=True)
    for left in work.iterdir():
        owner = left.name.lstrip(".").partition("-")[0]
        if owner.isdigit() and Path("/proc", owner).exists():
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _path() -> str:
    """The PATH, with the programs of our own environment first: CMake and Ninja are its."""
    ours = str(Path(python()).parent)
    return os.pathsep.join([ours, os.environ.get("PATH", os.defpath)])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
