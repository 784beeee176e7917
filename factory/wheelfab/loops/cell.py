"""The loop of a cell: its wheel, on each torch release that it is for, in a clean environment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from wheelfab import console, crash, machine
from wheelfab.build import Folders
from wheelfab.errors import HarnessError, UsageError
from wheelfab.facts import torch_release
from wheelfab.loops.crashes import report_crashes
from wheelfab.loops.crew import Target
from wheelfab.loops.environment import Environment, clean_environment
from wheelfab.loops.interpreter import Interpreter, find_interpreter
from wheelfab.loops.judge import Load
from wheelfab.loops.report import (
    COLUMNS,
    Harness,
    LoopReport,
    Run,
    SkipKind,
    Skipped,
    rows,
    series,
    this_machine,
    write_report,
)
from wheelfab.loops.runner import run_forked, run_fresh
from wheelfab.loops.site import torch_for
from wheelfab.model import Matrix, Profile
from wheelfab.records import read_json
from wheelfab.store import Store, default_root
from wheelfab.variant import Cell
from wheelfab.versions import allowed_pythons
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
    report = LoopReport(
        cell=cell.id, wheel=wheel.file, sha256=wheel.sha256, runs=(), skipped=tuple(skipped)
    )
    looper = _Looper(matrix, cell, wheel, options, store)
    for run in planned:
        interpreter = find_interpreter(run.pythons)
        if interpreter is None:
            report = replace(report, skipped=(*report.skipped, _no_python(run)))
        else:
            done = looper.run(run.torch, interpreter)
            report = replace(report, runs=(*report.runs, done))
        write_report(matrix.root, report)  # at once: what breaks the next run must not lose it
    write_report(matrix.root, report)
    return report


def built_wheel(root: Path, cell: Cell) -> Wheel:
    """The wheel that the last build of ``cell`` left, unchanged since.

    Raises ``UsageError`` when there is none.
    """
    folders = Folders(root=root)
    twin = " --debug" if cell.profile is Profile.DEBUG else ""
    next_step = f"run `wheelfab build {cell.name}{twin}`"
    try:
        record = read_json(folders.record(cell.id))
        name, sha256, reason = record["wheel"], record["sha256"], record["reason"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "was not built, or its record cannot be read", where=cell.id, next_step=next_step
        ) from error
    if not name:
        raise UsageError(f"has no wheel: {reason}", where=cell.id, next_step=next_step)
    file = folders.wheels(cell) / Path(str(name)).name
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


def torch_environment(
    cell: Cell, wheel: Wheel, store: Store
) -> AbstractContextManager[Environment] | None:
    """An environment with the wheel and the first of its torch releases that a Python here runs."""
    for run in plan_runs(cell, wheel, ())[0]:
        interpreter = find_interpreter(run.pythons)
        if interpreter is not None:
            site = torch_for(cell, run.torch, interpreter, store, full=False)
            return clean_environment(store, wheel, site, interpreter)
    return None


def require_asked(cells: Sequence[Cell], torch: Sequence[str]) -> None:
    """Raise ``UsageError`` for a release of ``--torch`` that none of ``cells`` takes.

    A loop of it would load nothing and find nothing wrong.
    """
    releases = parse_releases(torch)
    taken = [cell.pin.requirement for cell in cells]
    lost = [
        str(release)
        for release in releases
        if not any(requirement.contains(release, prereleases=True) for requirement in taken)
    ]
    if lost:
        known = "; ".join(f"{cell.id} takes torch{cell.pin.requirement}" for cell in cells)
        raise UsageError(f"--torch: no cell takes {', '.join(lost)}", next_step=known)


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
    crashes = [path for report in reports for run in report.runs for path in run.crashes]
    if crashes:
        console.table(crash.COLUMNS, crash.rows(crashes), title="Crashes")


@dataclass(frozen=True, slots=True)
class _Looper:
    """Loops one wheel on one torch release after another."""

    matrix: Matrix
    cell: Cell
    wheel: Wheel
    options: LoopOptions
    store: Store

    def run(self, release: Version, interpreter: Interpreter) -> Run:
        """All loads on one release, in an environment of its own."""
        options, wheel = self.options, self.wheel
        site = torch_for(self.cell, release, interpreter, self.store, full=options.full_torch)
        with clean_environment(self.store, wheel, site, interpreter) as environment:
            target = Target(
                python=environment.python,
                stages=self.matrix.project.load,
                timeout=options.timeout,
            )
            what = f"{self.cell.id} on torch {release}, Python {interpreter.version}"
            loads = _loop(target, options, what)
            found = imported_torch((*loads.fresh, *loads.forked), environment)
            crashes = report_crashes(self.matrix.root, target, what, loads.fresh, loads.forked)
        return Run(
            torch=release,
            found=found,
            source=site.tree.source,
            libraries=site.libraries,
            python=str(interpreter.version),
            wheel=wheel.file,
            sha256=wheel.sha256,
            harness=Harness.PROCESSES,
            jobs=options.jobs or machine.cores(),
            machine=this_machine(),
            fresh=series(loads.fresh),
            forked=series(loads.forked) if loads.forked else None,
            not_forked=loads.not_forked,
            crashes=crashes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loads:
    fresh: tuple[Load, ...]
    forked: tuple[Load, ...]
    not_forked: str = ""


def _loop(target: Target, options: LoopOptions, what: str) -> _Loads:
    """Fresh loads, then forked ones: where fresh ones fail, forked ones would tell nothing."""
    jobs = options.jobs or machine.cores()
    with console.progress(f"{what}: fresh loads", options.count) as advance:
        fresh = run_fresh(target, options.count, jobs, on_load=advance)
    if options.forked == 0:
        return _Loads(fresh=fresh, forked=(), not_forked="none asked for")
    if not all(load.passed for load in fresh):
        return _Loads(fresh=fresh, forked=(), not_forked="fresh loads failed")
    with console.progress(f"{what}: forked loads", options.forked) as advance:
        return _Loads(fresh=fresh, forked=run_forked(target, options.forked, jobs, on_load=advance))


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
