"""What each command does, a function a command: read the matrix, call the line, show the result."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfab import console, machine
from wheelfab.errors import BuildError, InfrastructureError, LoopError, UsageError
from wheelfab.host import HERE
from wheelfab.matrix import load_matrix
from wheelfab.model import Matrix, Profile
from wheelfab.variant import Cell, Expansion, expand, select

if TYPE_CHECKING:
    from wheelfab.containers import Engine
    from wheelfab.plan import Plan
    from wheelfab.wheel import Wheel


def plan_command(options: Namespace) -> None:
    """Show cells, actions, what each is shared by, what is stored, and the cost."""
    from wheelfab.build import Folders, missing_actions
    from wheelfab.plan_view import plan_record, show_plan
    from wheelfab.store import Store

    plan, expansion = _plan(options)
    folders = Folders(root=plan.source.root)
    missing = missing_actions(plan, Store(folders.build / "store"))
    record = plan_record(plan, expansion.excluded, missing, folders.build / "times")
    if options.json:
        console.result_json(record)
    else:
        show_plan(record)


def build_command(options: Namespace) -> None:
    """Build the cells asked for; raises ``BuildError`` when one did not end in a wheel."""
    from wheelfab.build import CellState, build
    from wheelfab.store import Store, default_root

    plan, expansion = _plan(options)
    asked = {cell.id for cell in plan.cells}
    excluded = () if options.names else expansion.excluded
    store = Store(default_root())
    if options.container:
        from wheelfab.manylinux.boxed import build_boxed

        results = build_boxed(plan, store, only_listed=options.locked)
    else:
        results = build(plan, store, excluded=excluded)
    if options.json:
        console.result_json(results)
    else:
        rows = [
            (result.cell, str(result.state), result.wheel.name if result.wheel else result.reason)
            for result in results
        ]
        console.table(("cell", "state", "wheel or reason"), rows)
    bad = [r for r in results if r.state in (CellState.FAILED, CellState.MISSING)]
    if bad:
        raise BuildError(
            f"{len(bad)} of {len(asked)} cells have no wheel: " + ", ".join(r.cell for r in bad),
            next_step="see the reasons above and build/logs/",
        )


def lock_command(options: Namespace) -> None:
    """Write matrix.lock: add what it lacks, or with ``--upgrade`` look everything up anew."""
    from wheelfab.containers import find_engine
    from wheelfab.locked import load_locked, write_locked
    from wheelfab.relock import make_lock, without_all_but_compilers
    from wheelfab.store import Store, default_root
    from wheelfab.toolchain.host import host_compiler

    matrix, cells, _ = _cells(options.matrix, ())
    old = load_locked(matrix.root)
    kept = without_all_but_compilers(old) if options.upgrade else old
    engine = find_engine(matrix.root)
    locked = make_lock(cells, Store(default_root()), host_compiler(), engine, kept)
    path = write_locked(matrix.root, locked)
    if options.json:
        console.result_json({"lock": path, "changed": locked != old})
    else:
        console.result(f"{path}: {'written' if locked != old else 'as it was'}")


def shell_command(options: Namespace) -> None:
    """Open the container that ``build --container`` builds a variant in."""
    from wheelfab.manylinux.boxed import open_box
    from wheelfab.store import Store, default_root

    plan, _ = _plan(options)
    sys.exit(open_box(plan, Store(default_root())))


def reproduce_command(options: Namespace) -> None:
    """Build each cell again from nothing, elsewhere, and compare; raises ``ReproduceError``."""
    from wheelfab.reproduce import ReproduceError, ReproduceOptions, reproduce, show_reports
    from wheelfab.store import Store, default_root

    plan, _ = _plan(options)
    against = Path(options.against) if options.against else None
    if against is not None and not against.is_file():
        raise UsageError("there is no such wheel", where=options.against)
    chosen = ReproduceOptions(against=against, container=not options.no_container)
    reports = reproduce(plan, Store(default_root()), chosen)
    if options.json:
        console.result_json(reports)
    else:
        show_reports(reports)
    bad = [f"{report.cell} ({report.failure})" for report in reports if report.failure]
    if bad:
        raise ReproduceError(
            "not reproduced: " + ", ".join(bad), next_step="see build/reproduce/<cell>/"
        )


def loop_command(options: Namespace) -> None:
    """Load each built wheel many times, on the matrix's hosts or here; raises ``LoopError``."""
    matrix, cells, _ = _cells(options.matrix, options.variant, _profile(options))
    if options.host == [HERE] or not matrix.hosts:
        _loop_here(options, matrix, cells)
    else:
        _loop_on_hosts(options, matrix, cells)


def _loop_here(options: Namespace, matrix: Matrix, cells: Sequence[Cell]) -> None:
    from wheelfab.loops import LoopOptions, loop_cell, require_asked, show_reports

    require_asked(cells, options.torch)
    chosen = LoopOptions(
        count=100 if options.count is None else options.count,
        forked=1000 if options.forked is None else options.forked,
        jobs=options.jobs,
        torch=tuple(options.torch),
        full_torch=options.full_torch,
    )
    reports = [loop_cell(matrix, cell, chosen) for cell in cells]
    if options.json:
        console.result_json(reports)
    else:
        show_reports(reports)
    failed = [report.cell for report in reports if report.asked and not report.passed]
    if failed:
        raise LoopError(
            "failed or not run: " + ", ".join(failed), next_step="see build/loops/<cell>.json"
        )
    if not any(report.passed for report in reports):
        raise LoopError("nothing was loaded", next_step="see the torch pins of matrix.toml")


def _loop_on_hosts(options: Namespace, matrix: Matrix, cells: Sequence[Cell]) -> None:
    from wheelfab.hosts import HostOptions, Verdict, cover, run_hosts, select_hosts, show_results
    from wheelfab.loops import built_wheel

    if options.torch or options.full_torch:
        what = "--torch and --full-torch are for this machine alone"
        raise UsageError(what, next_step=f"add --host {HERE}")
    if options.count == 0:
        raise UsageError("--count 0 would prove nothing", next_step="ask for at least one load")
    hosts = select_hosts(matrix, options.host)
    engine = None if options.no_container else _engine(matrix)
    chosen = HostOptions(
        count=options.count,
        forked=options.forked,
        jobs=options.jobs or machine.cores() + 1,  # one more while a container comes or goes
        deep=options.deep,
    )
    wheels = [(cell, built_wheel(matrix.root, cell)) for cell in cells]
    if not options.variant and not options.every:
        few = cover(wheels)
        wheels = [(cell, wheel) for cell, wheel in wheels if cell in few]
        names = ", ".join(cell.id for cell in few)
        console.note(f"{names}: every compiled file of the {len(cells)} wheels; --every loads all")
    results = run_hosts(matrix, wheels, hosts, chosen, engine)
    if options.json:
        console.result_json(results)
    else:
        show_results(results)
    failed = [item for item in results if item.verdict is Verdict.FAILED]
    if failed:
        names = ", ".join(dict.fromkeys(item.host for item in failed))
        raise LoopError(
            f"not as expected: {names}", next_step="see build/hosts/report.json, build/crashes/"
        )
    if not any(item.verdict is Verdict.PASSED for item in results):
        raise LoopError("no host was run", next_step="see the reasons above")


def _engine(matrix: Matrix) -> Engine | None:
    """The container engine, if one answers; otherwise it is said why not."""
    from wheelfab.containers import NoEngine, find_engine

    found = find_engine(matrix.root)
    if isinstance(found, NoEngine):
        console.note(f"no containers: {found.reason}")
        return None
    console.note(f"containers: {found.describe}")
    return found


def gpu_loop_command(options: Namespace) -> None:
    """Load and exercise each built wheel on every GPU; raises ``NoDeviceError`` without one."""
    from wheelfab.gpu import GpuOptions, gpu_loop, show_results
    from wheelfab.gpu.report import plain

    matrix, cells, _ = _cells(options.matrix, options.variant)
    chosen = GpuOptions(
        count=options.count,
        soak=options.soak,
        timeout=options.timeout,
        emulated=options.emulated,
        torch_index=options.torch_index,
    )
    engine = None if options.emulated or options.no_container else _engine(matrix)
    results = gpu_loop(matrix, cells, chosen, engine)
    if options.json:
        console.result_json([plain(result) for result in results])
    else:
        show_results(results)
    bad = [item.cell for item in results if not item.good]
    if bad:
        raise LoopError(
            "failed or not run: " + ", ".join(bad), next_step="see build/gpu/<cell>.json"
        )


def audit_command(options: Namespace) -> None:
    """Say what is wrong with wheels, or with all that are built; raises ``AuditError``."""
    from wheelfab import audit

    if options.explain is not None:
        audit.show_rule(audit.find_rule(options.explain))
        return
    policy = audit.load_policy(Path(options.policy)) if options.policy else audit.Policy()
    python = Path(options.python or sys.executable)
    if options.python:
        audit.require_python(python)
    chosen = audit.AuditOptions(policy=policy, deep=options.deep, python=python)
    paths = [Path(name) for name in options.wheels]
    with ExitStack() as environments:
        if not paths:
            matrix, built = _built(options.matrix)
            paths = [wheel.path for _, wheel in built]
            policies = (audit.cell_policy(cell, matrix.project, policy) for cell, _ in built)
            chosen = replace(chosen, policies=dict(zip(paths, policies, strict=True)))
            if options.deep and not options.python:
                chosen = replace(chosen, pythons=_pythons_with_torch(built, environments))
        audits = audit.audit_all(paths, chosen)
    if options.json:
        console.result_json(audit.report(audits))
    elif options.github:
        audit.show_annotations(audits)
    else:
        audit.show_audits(audits)
    audit.raise_for(audits)


def _built(path: str) -> tuple[Matrix, list[tuple[Cell, Wheel]]]:
    """The matrix and its cells that are built, each with its wheel."""
    from wheelfab.index import built_wheels

    matrix, cells, _ = _cells(path, ())
    found = []
    for cell, item in zip(cells, built_wheels(matrix.root, cells), strict=True):
        if item.wheel is None:
            console.note(f"not audited: {item}")
        else:
            found.append((cell, item.wheel))
    if not found:
        raise UsageError("no wheel is built", next_step="name one, or run `wheelfab build`")
    return matrix, found


def _pythons_with_torch(built: Sequence[tuple[Cell, Wheel]], kept: ExitStack) -> dict[Path, Path]:
    """For each wheel a Python with a torch that it is for, which is there as long as ``kept``."""
    from wheelfab.loops import torch_environment
    from wheelfab.store import Store, default_root

    store, pythons = Store(default_root()), {}
    for cell, wheel in built:
        made = torch_environment(cell, wheel, store)
        if made is not None:
            pythons[wheel.path] = kept.enter_context(made).python
    return pythons


def compat_command(options: Namespace) -> None:
    """On which torch releases the given wheels load; without any, the table of what was built."""
    if options.wheels:
        _compat_of_wheels(options)
        return
    from wheelfab.atlas import read_atlas
    from wheelfab.compat import ask_both, checked_url, show_table, tabulate, write_table

    url = checked_url(options.index_url) if options.index_url is not None else None
    matrix, cells, expansion = _cells(options.matrix, ())
    atlas = read_atlas(Path(options.atlas) if options.atlas else None)
    sources = ask_both(atlas, matrix.project)
    table = tabulate(matrix.root, cells, expansion.excluded, index_url=url, sources=sources)
    write_table(table, matrix.root / "build" / "compat")
    if options.json:
        console.result_json(table)
    else:
        show_table(table)


def _compat_of_wheels(options: Namespace) -> None:
    from wheelfab.atlas import read_atlas
    from wheelfab.atlas.show import plain_answers, show_answers
    from wheelfab.atlas.wheels import ask

    atlas = read_atlas(Path(options.atlas) if options.atlas else None)
    reports = [ask(atlas, Path(wheel)) for wheel in options.wheels]
    if options.json:
        console.result_json(plain_answers(reports))
    else:
        show_answers(reports)


def atlas_command(options: Namespace) -> None:
    """Read torch releases from an index into the symbol atlas; finished ones are kept."""
    from packaging.version import InvalidVersion, Version

    from wheelfab.atlas.show import show_steps
    from wheelfab.atlas.update import UpdateOptions, update_atlas
    from wheelfab.store import Store, default_root

    try:
        releases = tuple(Version(text) for text in options.release)
    except InvalidVersion as error:
        raise UsageError(str(error), where="--release", next_step="name one as 2.4.1") from error
    chosen = UpdateOptions(index=options.index, platform=options.platform, releases=releases)
    if options.into:
        chosen = replace(chosen, into=Path(options.into))
    steps = update_atlas(chosen, Store(default_root()))
    if options.json:
        console.result_json(steps)
    else:
        show_steps(steps)
    failed = [str(step.version) for step in steps if not step.complete]
    if failed:
        raise InfrastructureError(
            f"not or not wholly read: {', '.join(failed)}", next_step="see the reasons above"
        )


def index_command(options: Namespace) -> None:
    """Write a static simple index of the built wheels to ``build/index``."""
    from wheelfab.index import built_wheels, write_index

    matrix, cells, _ = _cells(options.matrix, ())
    target = Path(options.target) if options.target else matrix.root / "build" / "index"
    write_index(built_wheels(matrix.root, cells), target)
    if options.json:
        console.result_json({"index": target})
    else:
        console.result(str(target))


def publish_command(options: Namespace) -> None:
    """Publish the complete set of wheels with its pages to a folder, or nothing; verify a URL."""
    from wheelfab.compat import checked_url
    from wheelfab.index import built_wheels, publish, verify_served

    if options.target is None and options.verify is None:
        raise UsageError("nothing to do", next_step="name a folder, or --verify URL")
    url = checked_url(options.verify, "--verify") if options.verify is not None else None
    record: dict[str, object] = {}
    lines, published = [], None
    if options.target is not None:
        matrix, cells, _ = _cells(options.matrix, ())
        wheels = built_wheels(matrix.root, cells)
        published = publish(wheels, Path(options.target), expected=cells).catalog
        names = [item.wheel.file for item in wheels if item.wheel is not None]
        record |= {"folder": options.target, "wheels": names}
        lines.append(f"{len(wheels)} wheels in {options.target}")
    if url is not None:
        served = verify_served(url, published=published)
        record |= {"url": url, "verified": [item.file for item in served.files]}
        lines.append(f"{len(served.files)} wheels at {url}, each as its pages promise")
    if options.json:
        console.result_json(record)
    else:
        console.result("\n".join(lines))


def lint_import_command(options: Namespace) -> None:
    """Find what a package does to CUDA when it is imported; raises ``LoopError`` for an error."""
    from wheelfab.imports import LintOptions, fix, lint, show_fixes, show_report

    chosen = LintOptions(
        dynamic=False if options.static else None,
        python=Path(options.python) if options.python else None,
        why=options.why,
        budget=Path(options.budget) if options.budget else None,
        tests=options.tests,
    )
    report = lint(options.target, chosen)
    if options.json:
        console.result_json(report)
    else:
        show_report(report)
    if options.fix:
        show_fixes(*fix(report))
    if not report.passed:
        raise LoopError(
            f"importing {options.target} touches CUDA", next_step="see docs/lint-import.md"
        )


def container_command(options: Namespace) -> None:
    """Open a container of docker/Dockerfile's, or run a command in one; builds the image first."""
    from wheelfab.containers import NoEngine, find_engine
    from wheelfab.containers.visit import open_shell, run_command, visiting

    root = Path(options.matrix).resolve().parent
    engine = find_engine(root)
    if isinstance(engine, NoEngine):
        raise InfrastructureError(
            engine.reason, next_step="start dockerd, or set DOCKER_HOST to a Docker engine's socket"
        )
    image = engine.image(options.target, options.base)
    chosen = visiting(image, options.target, root / "dist")
    if not options.arguments:
        sys.exit(open_shell(engine, chosen))
    done = run_command(engine, chosen, options.arguments)
    if options.json:
        console.result_json(done)
        return
    if done.stderr:
        console.note(done.stderr.rstrip())
    if done.stdout:
        console.result(done.stdout)
    if not done.ok:
        raise LoopError(f"{options.arguments[0]} ended badly: {done.ending}")


def session_command(options: Namespace) -> None:
    """Run a session that ``matrix.toml`` describes."""
    from wheelfab.session import run_session

    matrix = load_matrix(Path(options.matrix))
    run_session(matrix, options.name, options.arguments, python=Path(sys.executable))


def docs_command(options: Namespace) -> None:
    """Regenerate the pages that come from the model; with ``--check`` only say whether they fit."""
    from wheelfab.audit import documents as audit_documents
    from wheelfab.compat import documents as compat_documents
    from wheelfab.matrix_docs import documents, write_docs

    folder = Path(options.matrix).resolve().parent / "docs"
    if options.hosts:
        from wheelfab.hosts import write_pages

        write_pages(load_matrix(Path(options.matrix)), folder)
    texts = documents() | audit_documents() | compat_documents()
    stale = write_docs(folder, texts, check=options.check)
    if stale and options.check:
        raise UsageError("out of date: " + ", ".join(stale), next_step="run `wheelfab docs`")
    if options.json:
        console.result_json({"stale": stale})
    else:
        console.result("\n".join(stale) or "up to date")


def _profile(options: Namespace) -> Profile:
    return Profile.DEBUG if options.debug else Profile.RELEASE


def _cells(
    path: str, names: Sequence[str], profile: Profile = Profile.RELEASE
) -> tuple[Matrix, tuple[Cell, ...], Expansion]:
    matrix = load_matrix(Path(path))
    expansion = expand(matrix, profile)
    return matrix, select(expansion, names), expansion


def _plan(options: Namespace) -> tuple[Plan, Expansion]:
    from wheelfab.inputs import compiler_flaw, is_locked_compiler
    from wheelfab.locked import load_locked
    from wheelfab.plan import plan
    from wheelfab.source import read_source
    from wheelfab.toolchain.host import host_compiler

    matrix, cells, expansion = _cells(options.matrix, options.names, _profile(options))
    locked, compiler = load_locked(matrix.root), host_compiler()
    here = not getattr(options, "container", False)
    if here and locked is not None and not is_locked_compiler(locked, compiler):
        flaw = compiler_flaw(locked, compiler)
        if options.locked:
            raise flaw
        console.warn(str(flaw))
    return plan(matrix, cells, read_source(matrix.root), compiler, locked), expansion
