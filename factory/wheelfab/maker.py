"""Makes the result of one action of a plan: folders, tools, torch, the steps and their log."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfab import console, machine, run
from wheelfab.diagnosis import NoMemoryError, compile_flags, failure
from wheelfab.errors import ToolchainError
from wheelfab.model import Profile
from wheelfab.plan import Action, ActionKind, Plan, python
from wheelfab.records import write_json
from wheelfab.slots import Slots
from wheelfab.steps import fill
from wheelfab.store import Store
from wheelfab.toolchain.pins import pinned
from wheelfab.toolchain.tools import fetch_tools
from wheelfab.toolchain.torch import TorchTree, torch_tree
from wheelfab.toolchain.wheels import fetch_toolchain
from wheelfab.variant import Cell

if TYPE_CHECKING:
    from wheelfab.compose import Parts

FLAGS = "flags.json"  # beside a part's libraries: what its compilers were told
_STEP_TIMEOUT = 3600.0


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


class Maker:
    """Makes the result of one action in the store of actions, with compile jobs of ``slots``."""

    def __init__(
        self, plan: Plan, folders: Folders, store: Store, actions: Store, slots: Slots
    ) -> None:
        self.plan, self.folders, self.store, self.actions = plan, folders, store, actions
        self.slots = slots

    def fetch_tools(self) -> Path | None:
        """The folder of the lock's build tools; ``None`` without a lock."""
        locked = self.plan.locked
        return fetch_tools(self.store, locked.requirement) if locked else None

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

    def pack(self, action: Action, needs: Mapping[str, Path], into: Path) -> Path:
        """Run the pack step of a wheel alone and leave the raw wheel in the folder ``into``."""
        from wheelfab.compose import prepare

        work = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folders.work))
        try:
            out = work / "out"
            out.mkdir()
            raw = prepare(self.plan, self._cell(action), self._parts(action, needs), out, work)
            alone = replace(action, steps=action.steps[:1])
            places = {"work": str(work), "out": str(out), "wheel": str(raw)}
            self._run(alone, places, self.folders.log(action))
            return Path(shutil.copy(raw, into))
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _fetch_device_compiler(self, action: Action) -> None:
        """Fetch it here, with the user's index and proxy: the step itself has no network."""
        variant = self._cell(action).variant
        if variant.cuda is not None:
            fetch_toolchain(self.store, variant.toolchain, variant.cuda)

    def _cuda_root(self, action: Action) -> Path:
        """The folder with ``include`` and ``lib`` of the CUDA runtime that the row links."""
        variant = self._cell(action).variant
        if variant.cuda is None:
            raise ToolchainError("a row that links the CUDA runtime has no cuda", where=action.id)
        content = fetch_toolchain(self.store, variant.toolchain, variant.cuda)
        return content / pinned(variant.toolchain, variant.cuda).include[0].parent

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
        if "cuda" in action.identity:
            places["cuda"] = str(self._cuda_root(action))
        self._run(action, places, log)
        write_json(out / FLAGS, compile_flags(_text(log)))

    def _runner(self, action: Action, log: Path) -> Callable[[Mapping[str, str]], None]:
        return lambda places: self._run(action, places, log)

    def _run(self, action: Action, places: Mapping[str, str], log: Path) -> None:
        """Run all steps; what ran out of memory is tried once more, alone, at half the jobs."""
        try:
            with self.slots.one():
                self._run_steps(action, places, log)
        except NoMemoryError:
            if self.slots.count == 1:
                raise
            with self.slots.half() as jobs:
                what = f"out of memory with {self.slots.count} jobs; again with {jobs}"
                console.warn(f"{action.id}: {what}")
                self._run_steps(action, places, log)

    def _run_steps(self, action: Action, places: Mapping[str, str], log: Path) -> None:
        compiler = self.plan.compiler
        known = {
            "python": python(),
            "cxx": str(compiler.path),
            "cc": str(compiler.cc),
            "root": str(self.plan.source.root.resolve()),
            **places,
        }
        for step in action.steps:
            environment = {"SOURCE_DATE_EPOCH": str(self.plan.source.epoch)}
            environment |= {"WHEELFAB_STORE": str(self.store.root), **self._tools(action)}
            environment |= {**self.slots.environment, **dict(step.env)}
            done = run.run(
                fill(step.argv, known),
                env=run.tool_environment(environment),
                cwd=self.plan.source.root,
                timeout=_STEP_TIMEOUT,
                log=log,
            )
            if not done.ok:
                raise failure(action, done, log)

    def _tools(self, action: Action) -> dict[str, str]:
        """Where a step's programs and modules come from: of the lock's tools, where there is one.

        The device compile's step is wheelfab's own code and uses none of them.
        """
        modules, programs = [*_own_modules()], _path()
        folder = None if action.kind is ActionKind.DEVICE else self.fetch_tools()
        if folder is not None:
            modules.insert(0, str(folder))
            programs = os.pathsep.join([str(folder / "bin"), programs])
        return {"PYTHONPATH": os.pathsep.join(modules), "PATH": programs}

    def _torch(self, action: Action) -> TorchTree:
        cell = self._cell(action)
        locked = self.plan.locked
        index = cell.variant.torch_index
        tree = torch_tree(
            self.store,
            release=cell.pin.headers,
            index=index,
            fallback=cell.variant.torch_fallback,
            locked=locked.torch_of(str(cell.pin.headers), index) if locked else None,
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


def pack_raw(plan: Plan, cell: Cell, store: Store, actions: Store, into: Path) -> Path:
    """Compile what ``cell``'s wheel needs and pack it, for a tool that repairs it; gives its path.

    Only ``compose.finish_wheel`` makes a wheel of the line out of it. Raises ``FactoryError``.
    """
    folders = Folders(root=plan.source.root)
    sweep(folders.work)
    wheel, done = plan.wheel(cell), dict[str, Path]()
    with Slots(machine.jobs()) as slots:
        maker = Maker(plan, folders, store, actions, slots)
        for action in plan.closure(wheel):
            if action is not wheel:
                needs = {need: done[need] for need in action.needs}
                done[action.id] = maker.make(action, needs)
        return maker.pack(wheel, {need: done[need] for need in wheel.needs}, into)


def sweep(work: Path) -> None:
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


def _own_modules() -> Iterator[str]:
    """Where a child Python finds wheelfab, and its libraries if they are in no environment."""
    yield str(Path(__file__).parent.parent)
    found = importlib.util.find_spec("rich")
    folder = str(Path(found.origin).parent.parent) if found and found.origin else ""
    if folder and folder not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        yield folder


def _path() -> str:
    """The PATH, with the programs of our own environment first: CMake and Ninja are its."""
    ours = str(Path(python()).parent)
    return os.pathsep.join([ours, os.environ.get("PATH", os.defpath)])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
