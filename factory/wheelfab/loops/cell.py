"""The loop of a cell: its wheel, on each torch release that it is for, in a clean environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from wheelfab import console, machine
from wheelfab.errors import HarnessError, UsageError
from wheelfab.facts import torch_release
from wheelfab.loops.environment import Environment, clean_environment
from wheelfab.loops.interpreter import Interpreter, find_interpreter
from wheelfab.loops.judge import Load
from wheelfab.loops.report import (
    COLUMNS,
    Harness,
    LoopReport,
    Run,
    Skipped,
    SkipKind,
    rows,
    series,
    this_machine,
    write_report,
)
from wheelfab.loops.runner import Target, run_forked, run_fresh
from wheelfab.loops.site import TorchSite, torch_site
from wheelfab.model import Matrix
from wheelfab.records import read_json
from wheelfab.store import Store, default_root
from wheelfab.toolchain.torch import torch_tree
from wheelfab.variant import Cell
from wheelfab.versions import allowed_pythons
from wheelfab.versions import series as series_of
from wheelfab.wheel import Wheel, read_wheel

_SHOWN = 10  # failures shown beside the table; the report has more


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopOptions:
    """How to loop. ``torch``: releases instead of the pin's own list; ``jobs``: the cores if None.

    ``forked`` may be 0. ``timeout``: seconds for one load.
    """

    count: int = 100
    forked: int = 1000
    jobs: int | None = None
    torch: tuple[str, ...] = ()
    full_torch: bool = False
    timeout: float = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A run to do: the wheel's stages on ``torch``, with a Python of one of ``pythons``."""

    torch: Version
    pythons: tuple[Version, ...]


def loop_cell(
    matrix: Matrix, cell: Cell, options: LoopOptions, *, store: Store | None = None
) -> LoopReport:
    """Loop the built wheel of ``cell`` and write ``build/loops/<cell>.json``.

    A load that fails is in the report. Raises ``UsageError`` when there is no wheel or an option
    makes no sense, ``WheelError`` when the wheel cannot be installed, ``ToolchainError`` when a
    torch release cannot be had, ``HarnessError`` when the loop itself breaks.
    """
    if options.count < 1:
        raise UsageError("--count 0 would prove nothing", next_step="ask for at least one load")
    store = store or Store(default_root())
    wheel = built_wheel(matrix.root, cell)
    planned, skipped = plan_runs(cell, wheel, parse_releases(options.torch))
    runs: list[Run] = []
    for run in planned:
        interpreter = find_interpreter(run.pythons)
        if interpreter is None:
            skipped.append(_no_python(run))
            continue
        runs.append(_run(matrix, cell, wheel, run, interpreter, options, store))
    report = LoopReport(
        cell=cell.id,
        wheel=wheel.file,
        sha256=wheel.sha256,
        runs=tuple(runs),
        skipped=tuple(skipped),
    )
    write_report(matrix.root, report)
    return report


def built_wheel(root: Path, cell: Cell) -> Wheel:
    """The wheel that the last build of ``cell`` left in ``dist/``, unchanged since.

    Raises ``UsageError`` when there is none.
    """
    path = root / "build" / cell.id / "build.json"
    next_step = f"run `wheelfab build {cell.id}`"
    try:
        record = read_json(path)
        name, sha256, reason = record["wheel"], record["sha256"], record["reason"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "was not built, or its record cannot be read", where=cell.id, next_step=next_step
        ) from error
    if not name:
        raise UsageError(f"has no wheel: {reason}", where=cell.id, next_step=next_step)
    file = root / "dist" / Path(str(name)).name
    if not file.is_file():
        raise UsageError("its wheel is gone", where=str(file), next_step=next_step)
    wheel = read_wheel(file)
    if wheel.sha256 != sha256:
        raise UsageError("changed since it was built", where=str(file), next_step=next_step)
    return wheel


def plan_runs(
    cell: Cell, wheel: Wheel, asked: Sequence[Version]
) -> tuple[list[PlannedRun], list[Skipped]]:
    """Which torch releases to loop on: those of the pin, or those of ``asked`` that it allows."""
    planned, skipped = [], []
    for release in asked or cell.pin.run_on:
        if not cell.pin.requirement.contains(release, prereleases=True):
            reason = f"torch {release} is not in {cell.pin.requirement}"
            skipped.append(Skipped(torch=release, kind=SkipKind.NOT_ASKED, reason=reason))
            continue
        known = torch_release(release)
        if known is None:
            reason = f"no facts about torch {release}, so its Pythons are unknown"
            skipped.append(Skipped(torch=release, kind=SkipKind.NOT_POSSIBLE, reason=reason))
            continue
        pythons = allowed_pythons(cell.requires_python, known.pythons)
        if wheel.requires_python is not None:
            pythons = allowed_pythons(wheel.requires_python, pythons)
        planned.append(PlannedRun(torch=release, pythons=pythons))
    return planned, skipped


def parse_releases(texts: Sequence[str]) -> tuple[Version, ...]:
    """The torch releases on a command line; raises ``UsageError`` for what is none."""
    try:
        return tuple(Version(text) for text in texts)
    except InvalidVersion as error:
        raise UsageError(f"--torch: {error}", next_step="write a release such as 2.10.0") from error


def show_reports(reports: Sequence[LoopReport]) -> None:
    """Show a table of ``reports``, and the first failures of each."""
    console.table(COLUMNS, [row for report in reports for row in rows(report)])
    for report in reports:
        failures = [
            (run.torch, kind, failure)
            for run in report.runs
            for kind, found in (("fresh", run.fresh), ("forked", run.forked))
            for failure in (found.failures if found is not None else ())
        ]
        for torch, kind, failure in failures[:_SHOWN]:
            console.error(f"{report.cell} on torch {torch}, {kind} {failure.summary}")
            console.note("\n".join(part for part in (failure.stderr, failure.stack) if part))


def _run(
    matrix: Matrix,
    cell: Cell,
    wheel: Wheel,
    planned: PlannedRun,
    interpreter: Interpreter,
    options: LoopOptions,
    store: Store,
) -> Run:
    site = _site(matrix, cell, planned, interpreter, options, store)
    with clean_environment(store, wheel, site, interpreter) as environment:
        target = Target(
            python=environment.python, stages=matrix.project.load, timeout=options.timeout
        )
        jobs = options.jobs or machine.cores()
        what = f"{cell.id} on torch {planned.torch}, Python {interpreter.version}"
        with console.progress(f"{what}: fresh loads", options.count) as advance:
            fresh = run_fresh(target, options.count, jobs, on_load=advance)
        forked, not_forked = _fork(target, fresh, options, jobs, what)
        return Run(
            torch=planned.torch,
            found=imported_torch((*fresh, *forked), environment),
            source=site.tree.source,
            libraries=site.libraries,
            python=str(interpreter.version),
            wheel=wheel.file,
            sha256=wheel.sha256,
            harness=Harness.PROCESSES,
            jobs=jobs,
            machine=this_machine(),
            fresh=series(fresh),
            forked=series(forked) if forked else None,
            not_forked=not_forked,
        )


def _site(
    matrix: Matrix,
    cell: Cell,
    planned: PlannedRun,
    interpreter: Interpreter,
    options: LoopOptions,
    store: Store,
) -> TorchSite:
    tree = torch_tree(
        store,
        release=planned.torch,
        index=cell.variant.torch_index,
        fallback=cell.variant.torch_fallback,
        python=str(series_of(interpreter.version)),
    )
    return torch_site(store, tree, interpreter, full=options.full_torch)


def _fork(
    target: Target, fresh: Sequence[Load], options: LoopOptions, jobs: int, what: str
) -> tuple[tuple[Load, ...], str]:
    """The forked loads, or why there are none: with failing fresh ones they would tell nothing."""
    if options.forked == 0:
        return (), "none asked for"
    if not all(load.passed for load in fresh):
        return (), "fresh loads failed"
    with console.progress(f"{what}: forked loads", options.forked) as advance:
        return run_forked(target, options.forked, jobs, on_load=advance), ""


def imported_torch(loads: Sequence[Load], environment: Environment) -> str | None:
    """The torch that the loads imported: one and the same, and the one that is installed.

    Raises ``HarnessError`` when it was another one, which would prove nothing about this one.
    """
    found = {load.torch for load in loads if load.passed and load.torch is not None}
    installed = environment.version("torch")
    for text in found:
        if installed is None or Version(text).public != installed.public:
            raise HarnessError(
                f"torch {text} was imported, torch {installed} is installed",
                where=str(environment.root),
            )
    if len(found) > 1:
        raise HarnessError(f"several torch were imported: {', '.join(sorted(found))}")
    return found.pop() if found else None


def _no_python(run: PlannedRun) -> Skipped:
    names = ", ".join(map(str, run.pythons)) or "no Python in common"
    return Skipped(
        torch=run.torch,
        kind=SkipKind.NOT_POSSIBLE,
        reason=f"none of its Pythons on this machine ({names})",
    )
