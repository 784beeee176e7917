"""The check of a package's imports: read its source, run its imports, say what was found."""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wheelfab import console, run
from wheelfab.errors import UsageError
from wheelfab.imports.budget import load_budget
from wheelfab.imports.dynamic import run_imports
from wheelfab.imports.package import Package
from wheelfab.imports.reach import Reach
from wheelfab.imports.record import Ending, Finding, ImportReport, ImportRun, LintOptions, Unchecked
from wheelfab.imports.releases import read_releases
from wheelfab.imports.seen import judge_runs
from wheelfab.imports.target import Target, is_test, open_target
from wheelfab.imports.why import explain
from wheelfab.suggest import joined


def lint(target: Path | str, options: LintOptions | None = None) -> ImportReport:
    """Check what importing ``target`` does to the GPU, importing nothing of it in this process.

    ``target`` is a file, a package's or a project's folder, a wheel, an sdist, or the name of an
    installed package. Imports are run in child processes unless ``options.dynamic`` is false, or it
    is ``None`` and the target is an archive, whose dependencies are not there.

    Raises ``UsageError`` for no such target or a wrong budget, ``FormatError`` for a broken
    archive.
    """
    chosen = options or LintOptions()
    with open_target(target, _search_path(chosen.python)) as found:
        opened, left_out = _without_tests(found) if not chosen.tests else (found, ())
        package = read_package(opened)
        reach = Reach(package, chosen.depth, read_releases(opened.requirements))
        why = None
        if chosen.why is not None:
            why = explain(package, reach, _start(opened), chosen.why)
        findings = reach.findings()
        unchecked = (*left_out, *package.unreadable)
        runs: tuple[ImportRun, ...] = ()
        if chosen.dynamic or (chosen.dynamic is None and opened.importable):
            seen, runs, missed = _run(opened, package, chosen)
            findings, unchecked = (*findings, *seen), (*unchecked, *missed)
        elif chosen.budget is not None:
            raise UsageError("a budget needs the imports to be run", next_step="leave it out")
        return ImportReport(
            target=opened.shown,
            version=opened.version,
            root=opened.root,
            editable=opened.editable,
            packages=tuple(sorted(opened.tops)),
            modules=len(package.modules),
            findings=findings,
            unchecked=unchecked,
            runs=runs,
            why=why,
        )


def read_package(target: Target) -> Package:
    """The source of every module of ``target`` as facts."""
    package = Package(root=target.root, tops=target.tops)
    with console.progress("modules read", len(target.modules)) as advance, _no_collection():
        for name, path in target.modules:
            package.add(path, name)
            advance()
    return package


def _without_tests(target: Target) -> tuple[Target, tuple[Unchecked, ...]]:
    """The target without the tests that it ships, which say at their top what they need."""
    kept = tuple((name, path) for name, path in target.modules if not is_test(name))
    left_out = len(target.modules) - len(kept)
    if not left_out or not kept:
        return target, ()
    reason = "tests are checked only when asked for"
    unchecked = Unchecked(what=f"{left_out} test modules", reason=reason)
    return dataclasses.replace(target, modules=kept), (unchecked,)


def _run(
    target: Target, package: Package, options: LintOptions
) -> tuple[tuple[Finding, ...], tuple[ImportRun, ...], tuple[Unchecked, ...]]:
    names = [name for name, _ in target.modules]
    budget = load_budget(options.budget, names) if options.budget is not None else None
    runs, unchecked = run_imports(target, options, budget)
    files = {name: facts.file for name, facts in package.modules.items()}
    return judge_runs(runs, files, target.root, budget), runs, (*unchecked, *_absent(runs))


def _absent(runs: tuple[ImportRun, ...]) -> tuple[Unchecked, ...]:
    """The modules that need something that is not installed, by what they need."""
    by_reason: dict[str, list[str]] = {}
    for done in runs:
        if done.ending is Ending.MISSING:
            by_reason.setdefault(done.detail, []).append(done.module)
    return tuple(
        Unchecked(what=f"import of {_listed(modules)}", reason=reason)
        for reason, modules in by_reason.items()
    )


def _listed(modules: list[str]) -> str:
    return modules[0] if len(modules) == 1 else f"{modules[0]} and {len(modules) - 1} more"


def _start(target: Target) -> str:
    """The package that ``--why`` starts from: the only one, or the one with the target's name."""
    tops = sorted(target.tops)
    if len(tops) == 1:
        return tops[0]
    if target.shown in tops:
        return target.shown
    raise UsageError(
        f"several packages: {joined(tops)}", where=target.shown, next_step="name one's folder"
    )


def _search_path(python: Path | None) -> list[str]:
    """Where installed packages are looked for: our own path, or that of another interpreter."""
    if python is None:
        return sys.path
    code = "import json, sys; print(json.dumps(sys.path[1:]))"
    done = run.run((str(python), "-c", code), env=run.tool_environment(), timeout=30)
    if not done.ok:
        raise UsageError(
            f"no Python answers ({done.ending})", where=str(python), next_step="choose another"
        )
    return list(map(str, json.loads(done.stdout)))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Syntax trees hold no cycles: collecting while thousands are made only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
