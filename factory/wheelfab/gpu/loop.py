"""The loop of wheels on devices: is there one, fresh loads, then an exercise of each device."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wheelfab import console
from wheelfab.containers import Engine
from wheelfab.errors import HarnessError, UsageError
from wheelfab.gpu.exercised import Exercise
from wheelfab.gpu.ground import Footing, open_footing
from wheelfab.gpu.report import GpuResult, Ground, write_result
from wheelfab.gpu.work import Work, images_of, load_failure, no_device, ready_state
from wheelfab.host import TorchChoice
from wheelfab.hosts.arrange import Emulation, make_emulation
from wheelfab.hosts.report import Count
from wheelfab.hosts.sites import Site, Sites, host_torch, open_sites
from wheelfab.hosts.visits import Visit
from wheelfab.loops import built_wheel
from wheelfab.loops.report import this_machine
from wheelfab.model import DeviceRun, Matrix
from wheelfab.store import Store, default_root
from wheelfab.toolchain.torch import TorchTree, torch_tree
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuOptions:
    """How to loop: ``count`` fresh loads a wheel, a ``soak`` of so many launches a device.

    ``timeout``: seconds for all devices of a wheel. ``emulated``: under the fake driver, in
    processes. ``torch_index``: where torch comes from instead of the matrix's index.
    """

    count: int = 20
    soak: int = 1000
    timeout: float = 900.0
    emulated: bool = False
    torch_index: str | None = None


def gpu_loop(
    matrix: Matrix, cells: Sequence[Cell], options: GpuOptions, engine: Engine | None
) -> list[GpuResult]:
    """Loop the built wheels of ``cells`` and write ``build/gpu/<cell>.json`` for each.

    Wheels without device code are left out. What fails is in the results. Raises ``NoDeviceError``
    where no GPU answers, ``UsageError`` when there is nothing to loop or a wheel is not built.
    """
    device_run = _device_run(matrix, options)
    chosen = [cell for cell in cells if cell.variant.cuda is not None]
    if not chosen:
        raise UsageError("no wheel asked for holds device code", next_step="name a cuda variant")
    for cell in cells:
        if cell not in chosen:
            console.note(f"{cell.id} is left out: it holds no device code")
    store = Store(default_root())
    results = []
    with (
        open_sites(matrix, store) as sites,
        tempfile.TemporaryDirectory(prefix="wheelfab-gpu-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        usable = usable_engine(engine, emulated=options.emulated)
        looper = _Looper(matrix, device_run, options, usable, sites, store, folder)
        built = _any_built(matrix, chosen)
        if built is not None:
            looper.ask(*built)  # that there is no GPU is said first, whatever was not built
        for cell, wheel in [(cell, built_wheel(matrix.root, cell)) for cell in chosen]:
            result = looper.loop(cell, wheel)
            write_result(matrix.root, result, this_machine())
            results.append(result)
    return results


def usable_engine(engine: Engine | None, *, emulated: bool) -> Engine | None:
    """The engine, if it can give a container a GPU and one is wanted."""
    if emulated or engine is None:
        return None
    if not engine.has_nvidia:
        console.note("the Docker engine has no NVIDIA runtime: processes here, no container")
        return None
    return engine


def unfit(tree: TorchTree, *, emulated: bool) -> str:
    """Why devices cannot be used with this torch, or ``""``."""
    if emulated and tree.cuda is not None:
        return f"torch {tree.version} is a build for CUDA, and the emulation needs a CPU build"
    if not emulated and tree.cuda is None:
        return (
            f"torch {tree.version} is a CPU build, which uses no device; "
            "give --torch-index an index of CUDA builds"
        )
    return ""


def _device_run(matrix: Matrix, options: GpuOptions) -> DeviceRun:
    """What to run on a device; raises ``UsageError`` when matrix or options do not say it."""
    device_run = matrix.project.device_run
    if options.count < 1 or options.soak < 1:
        raise UsageError(
            "--count 0 or --soak 0 would prove nothing", next_step="ask for at least 1"
        )
    if device_run is None or matrix.project.state is None:
        raise UsageError(
            "nothing says what to run on a device",
            where="matrix.toml: project",
            next_step="add project.state and project.device-run",
        )
    if options.emulated and device_run.emulation is None:
        raise UsageError(
            "the project has no emulation",
            where="matrix.toml: project.device-run",
            next_step="add project.device-run.emulation",
        )
    return device_run


def _any_built(matrix: Matrix, cells: Sequence[Cell]) -> tuple[Cell, Wheel] | None:
    """The first of ``cells`` that has a wheel, if one has."""
    for cell in cells:
        with suppress(UsageError):
            return cell, built_wheel(matrix.root, cell)
    return None


@dataclass(frozen=True, slots=True)
class _Looper:
    """Loops one wheel after another with what they share."""

    matrix: Matrix
    device_run: DeviceRun
    options: GpuOptions
    engine: Engine | None
    sites: Sites
    store: Store
    folder: Path

    def loop(self, cell: Cell, wheel: Wheel) -> GpuResult:
        """All of one wheel; raises ``NoDeviceError`` before anything large is fetched for it."""
        began = time.monotonic()
        if self.options.torch_index is not None:
            row = replace(cell.variant, torch_index=self.options.torch_index, torch_fallback=None)
            cell = replace(cell, variant=row)
        self.ask(cell, wheel)
        tree = self._torch(cell)
        reason = unfit(tree, emulated=self.options.emulated)
        if reason:
            return _not_run(cell, wheel, tree.version, reason)
        site = self._site(cell, wheel, TorchChoice.OWN)
        emulation = self._emulation(tree) if self.options.emulated else None
        with self._footing(cell, site) as footing:
            state = self._ready(footing, site)
            work = Work(project=self.matrix.project, footing=footing, site=site)
            seen = _Seen(
                ground=footing.ground,
                state=state,
                visits=work.load(self.options.count),
                exercise=work.exercise(
                    images_of(state),
                    self.device_run,
                    soak=self.options.soak,
                    timeout=self.options.timeout,
                    emulation=emulation,
                ),
            )
        result = _result(cell, wheel, site, seen)
        return replace(result, soak=self.options.soak, seconds=time.monotonic() - began)

    def ask(self, cell: Cell, wheel: Wheel) -> None:
        """Ask for a device without torch; raises ``NoDeviceError`` unless there is one."""
        bare = self._site(cell, wheel, TorchChoice.NONE)
        with self._footing(cell, bare) as footing:
            self._ready(footing, bare)

    def _ready(self, footing: Footing, site: Site) -> Mapping[str, Any]:
        answer = Work(project=self.matrix.project, footing=footing, site=site).ask()
        state = ready_state(answer)
        if state is None:
            raise no_device(answer)
        return state

    def _footing(self, cell: Cell, site: Site) -> AbstractContextManager[Footing]:
        folder = self.folder / cell.id
        folder.mkdir(exist_ok=True)
        libraries = self._compiled / "libraries"
        return open_footing(self.engine, site, folder, libraries, emulated=self.options.emulated)

    @property
    def _compiled(self) -> Path:
        """Where hosts keep what they compile; the same is used here."""
        return self.matrix.root / "build" / "hosts"

    def _site(self, cell: Cell, wheel: Wheel, choice: TorchChoice) -> Site:
        site = self.sites.get(cell, wheel, choice)
        if isinstance(site, str):
            raise HarnessError(f"there is no environment to load from: {site}", where=cell.id)
        return site

    def _torch(self, cell: Cell) -> TorchTree:
        return torch_tree(
            self.store,
            release=host_torch(cell.pin),
            index=cell.variant.torch_index,
            fallback=cell.variant.torch_fallback,
        )

    def _emulation(self, tree: TorchTree) -> Emulation:
        console.step(f"making the emulation for torch {tree.version}")
        folder = self._compiled / f"emulation-{tree.release}"
        python = Path(sys.executable)
        return make_emulation(self.device_run, self.matrix.root, python, tree.path, folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What was seen of one wheel on a footing."""

    ground: Ground
    state: Mapping[str, Any]
    visits: Sequence[Visit]
    exercise: Exercise


def _result(cell: Cell, wheel: Wheel, site: Site, seen: _Seen) -> GpuResult:
    exercise = seen.exercise
    wrong = [text for visit in seen.visits if (text := load_failure(visit))]
    failures = [f"fresh load: {text}" for text in wrong]
    bad = [device for device in exercise.devices if device.failure]
    failures += [f"device {device.ordinal}: {device.failure}" for device in bad]
    if exercise.failure and not bad:
        failures.append(f"after the devices: {exercise.failure}")
    return GpuResult(
        cell=cell.id,
        wheel=wheel.file,
        sha256=wheel.sha256,
        torch=exercise.torch or str(site.torch),
        libraries=str(site.libraries),
        harness=seen.ground,
        status=str(seen.state.get("status", "")),
        reason=str(seen.state.get("reason", "")),
        fresh=Count(made=len(seen.visits), passed=len(seen.visits) - len(wrong)),
        soak=0,
        devices=exercise.devices,
        failures=tuple(failures),
        seconds=0.0,
        not_run="",
    )


def _not_run(cell: Cell, wheel: Wheel, torch: str, reason: str) -> GpuResult:
    return GpuResult(
        **dict.fromkeys(("libraries", "status", "reason"), ""),
        cell=cell.id,
        wheel=wheel.file,
        sha256=wheel.sha256,
        torch=torch,
        harness=None,
        fresh=Count(made=0, passed=0),
        soak=0,
        devices=(),
        failures=(),
        seconds=0.0,
        not_run=reason,
    )
