"""Twice here, once in a container, and against a given wheel: each cell's bytes compared."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from wheelfab.diagnosis import Compiles
from wheelfab.errors import BuildError, InfrastructureError, UsageError
from wheelfab.inputs import fetch_inputs, is_locked_compiler
from wheelfab.locked import ADD, LOCK
from wheelfab.manylinux.box import Box, build_in_box, find_box
from wheelfab.manylinux.config import PROJECT, SOURCES
from wheelfab.plan import Plan
from wheelfab.records import digest, file_digest
from wheelfab.reproduce.builds import Made, build_again
from wheelfab.reproduce.causes import Words, name_causes
from wheelfab.reproduce.compare import compare_wheels
from wheelfab.reproduce.report import Build, Outcome, Report, write_report
from wheelfab.reproduce.surroundings import Varied, make_clock, vary
from wheelfab.run import run, tool_environment
from wheelfab.store import Store
from wheelfab.variant import Cell
from wheelfab.wheel import read_wheel

_DIFFOSCOPE_TIMEOUT = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproduceOptions:
    """``against``: a finished wheel to compare with. ``container``: build there too."""

    against: Path | None = None
    container: bool = True


def reproduce(plan: Plan, store: Store, options: ReproduceOptions) -> tuple[Report, ...]:
    """Build the plan's cells twice from nothing and compare; the reports lie in build/reproduce.

    Raises ``UsageError`` without a lock or for a given wheel of no cell, ``HarnessError`` when a
    build broke off.
    """
    if plan.locked is None:
        raise UsageError(f"there is no {LOCK}, so that no bytes are promised", next_step=ADD)
    against = options.against
    given = given_cell(plan, against) if against is not None else None
    folder = plan.source.root.resolve() / "build" / "reproduce"
    shutil.rmtree(folder, ignore_errors=True)
    box = _box(plan) if options.container else None
    fetch_inputs(plan.locked, plan.cells, store)
    varied = vary(make_clock(folder / "clock", plan.compiler.cc))
    cells = [cell.id for cell in plan.cells]
    made = [build_again(plan, cells, varied.first, folder, store)]
    made.append(build_again(plan, cells, varied.second, folder, store))
    reports = []
    for cell in plan.cells:
        boxed = [_in_container(plan, cell, box, folder, store)] if box else []
        report = _report(plan, cell, varied, [*made, *boxed], folder)
        if against is not None and cell == given:
            report = compare_given(report, against, [*made, *boxed], folder)
        write_report(folder, report)
        reports.append(report)
    return tuple(reports)


def given_cell(plan: Plan, wheel: Path) -> Cell:
    """The one cell of ``plan`` that a finished wheel is of, by its name and local version.

    Raises ``UsageError`` where there is none, so that nothing would be compared; ``WheelError``
    for a wheel that is broken or was renamed.
    """
    given = read_wheel(wheel)
    ours = canonicalize_name(plan.matrix.project.name)
    for cell in plan.cells:
        if (given.name, given.version.local) == (ours, cell.local_version):
            return cell
    known = ", ".join(f"{cell.id} ({ours} …+{cell.local_version})" for cell in plan.cells)
    raise UsageError(
        f"{wheel.name} is {given.name} {given.version}, not a cell that is built: {known}",
        where="--against",
        next_step="give the wheel of one of them, or name its cell with --cell",
    )


def _box(plan: Plan) -> Box:
    try:
        return find_box(plan.source.root, plan.locked, only_listed=True)
    except InfrastructureError as error:
        step = f"{error.next_step}; or compare builds of this machine alone with --no-container"
        raise InfrastructureError(error.what, where=error.where, next_step=step) from error


def _in_container(plan: Plan, cell: Cell, box: Box, folder: Path, store: Store) -> Made:
    """The cell's wheel as cibuildwheel makes it in the container, or why there is none."""
    root = folder / "container" / cell.id
    try:
        boxed = build_in_box(plan, cell, box, root, store)
    except BuildError as error:
        nothing, why = Compiles(host=0, device=0), {cell.id: str(error)}
        return Made(
            name="container", root=root, seconds=0, compiles=nothing, wheels={}, failures=why
        )
    return Made(
        name="container",
        root=Path(PROJECT / SOURCES),
        seconds=boxed.seconds,
        compiles=Compiles(host=boxed.host_compiles, device=boxed.device_compiles),
        wheels={cell.id: boxed.wheel},
        failures={},
    )


def _report(plan: Plan, cell: Cell, varied: Varied, made: Sequence[Made], folder: Path) -> Report:
    first = made[0]
    builds = tuple(compare_build(cell.id, item, first, folder) for item in made)
    wheel = first.wheels.get(cell.id)
    compiler = plan.compiler
    return Report(
        cell=cell.id,
        wheel=wheel.name if wheel else "",
        compiler=f"g++ {compiler.version} ({compiler.cc1plus_sha256[:12]})",
        compiler_locked=plan.locked is not None and is_locked_compiler(plan.locked, compiler),
        different=varied.different,
        same=varied.same,
        builds=builds,
    )


def compare_build(cell: str, made: Made, first: Made, folder: Path) -> Build:
    """How the wheel that ``made`` has of a cell compares with ``first``'s."""
    base = Build(
        name=made.name,
        outcome=Outcome.SAME,
        sha256=made.sha256(cell),
        seconds=made.seconds,
        host_compiles=made.compiles.host,
        device_compiles=made.compiles.device,
    )
    if base.sha256 is None:
        reason = made.failures.get(cell, "it left no wheel")
        return replace(base, outcome=Outcome.FAILED, reason=reason)
    reference = first.wheels.get(cell)
    if reference is None:
        return replace(base, outcome=Outcome.NOT_COMPARED, reason="the first build has no wheel")
    ours, theirs = _compiler(reference), _compiler(made.wheels[cell])
    if made.name == "container" and ours != theirs:
        reason = f"made by {theirs} there and by {ours} here"
        return replace(base, outcome=Outcome.NOT_COMPARED, reason=reason)
    words = (_words(first), _words(made))
    return _judge(base, (reference, made.wheels[cell]), words, folder / cell)


def _judge(
    base: Build, wheels: tuple[Path, Path], words: tuple[Words, Words], folder: Path
) -> Build:
    """``base`` with the causes for which the second of ``wheels`` is not the first."""
    if file_digest(wheels[0]) == base.sha256:
        return base
    findings = name_causes(compare_wheels(*wheels), *words)
    text = diffoscope(*wheels, folder / f"diffoscope-{base.name}.txt")
    return replace(base, outcome=Outcome.DIFFERS, findings=findings, diffoscope=text)


def _words(made: Made) -> Words:
    return Words(folder=str(made.root), names=("elsewhere", "user4321", os.uname().nodename))


def diffoscope(first: Path, second: Path, target: Path) -> str:
    """The path of diffoscope's report on two wheels, or the reason why there is none."""
    program = shutil.which("diffoscope")
    if program is None:
        return "no diffoscope on the PATH; install it for a report (Debian: diffoscope-minimal)"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    argv = (program, "--text", str(target), "--no-progress", str(first), str(second))
    done = run(argv, env=tool_environment(), timeout=_DIFFOSCOPE_TIMEOUT)
    if target.is_file():
        return str(target)
    return f"diffoscope left no report ({done.ending}): {done.stderr.strip()[-200:]}"


def compare_given(report: Report, wheel: Path, made: Sequence[Made], folder: Path) -> Report:
    """Add the given wheel of the report's cell.

    It is compared with the build that had its compiler: here, else in the container.
    """
    mine = [item for item in made if report.cell in item.wheels]
    base = Build(name="given", outcome=Outcome.SAME, sha256=file_digest(wheel))
    if not mine:
        reason = "no build left a wheel to compare it with"
        judged = replace(base, outcome=Outcome.NOT_COMPARED, reason=reason)
        return replace(report, builds=(*report.builds, judged))
    alike = (item for item in mine if _compiler(item.wheels[report.cell]) == _compiler(wheel))
    reference = next(alike, mine[0])
    words = (_words(reference), Words(folder="/nowhere/that/is/known"))
    wheels = (reference.wheels[report.cell], wheel)
    judged = _judge(base, wheels, words, folder / report.cell)
    return replace(report, builds=(*report.builds, judged))


def _compiler(wheel: Path) -> str:
    """The host compiler that a wheel's record names."""
    host = ((read_wheel(wheel).build or {}).get("compilers") or {}).get("host") or {}
    if not isinstance(host, dict):
        return str(host)
    return f"g++ {host.get('version')} ({digest(host)[:12]})"
