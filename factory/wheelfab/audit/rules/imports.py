"""What importing the wheel would do: code that runs at load, the driver, its Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.loading import load_libraries
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.elf import hosts
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule
from wheelfab.imports.lint import lint
from wheelfab.imports.record import Finding, Level, LintOptions

_DRIVER = re.compile(r"cu[A-Z]\w+|nvml[A-Z]\w+|nvPTXCompiler\w+")
_OF_CUDA = re.compile(r"lib(cuda|nvidia-ml|cuda\w+|cu\w+|nv\w+)\.so.*")
_MOST_MODULES = 1000
_SHOWN = 5


@rule(
    "imports-initialisers",
    severity=Severity.WARNING,
    about="""Few functions run when a library is loaded: static objects with constructors, one
    function a source file. Each runs before anyone can catch its failure, and torch itself has
    hundreds. The policy says how many (`imports.initialisers`); gcc's own start-up is one.""",
    next_step="make static objects local to the functions that use them",
)
def _initialisers(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    for library, elf in hosts(facts):
        if elf.initialisers > policy.imports.initialisers:
            found = f"{elf.initialisers} functions run at load"
            allowed = f"at most {policy.imports.initialisers}"
            yield Broken(subject=library.name, found=found, allowed=allowed)


@rule(
    "imports-driver-symbols",
    severity=Severity.ERROR,
    about="""No library leaves a function of the driver's undefined without needing a library that
    could define it: Python binds all symbols at load, so that the import fails even on a machine
    with a driver, unless somebody loaded it before for all to see (B05).""",
    next_step="open the driver with dlopen and look functions up by name",
)
def _driver(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library, elf in hosts(facts):
        if any(_OF_CUDA.fullmatch(name) for name in elf.needed):
            continue
        names = sorted(
            one.name
            for one in elf.undefined
            if not one.weak and one.version is None and _DRIVER.fullmatch(one.name)
        )
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            found = f"{', '.join(names[:_SHOWN])}{more}: undefined, with no driver needed"
            yield Broken(subject=library.name, found=found, allowed="no symbol of the driver")


@rule(
    "imports-python",
    severity=Severity.ERROR,
    about="""Importing the wheel's Python touches no GPU: no call at the top level of a module
    reaches CUDA, the driver or nvidia-smi, by whatever chain (B13, B29). This is `wheelfab
    lint-import` without running anything; its own warnings are warnings here. A wheel of over 1000
    modules is left to that command.""",
    next_step="move the call into the function that needs it; wheelfab lint-import shows the chain",
)
def _python(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    modules = sum(member.name.endswith(".py") for member in facts.members)
    if not modules:
        return
    if modules > _MOST_MODULES:
        reason = f"{modules} modules: run wheelfab lint-import {facts.file}"
        yield Unknown(subject=facts.file, reason=reason)
        return
    by_file: dict[tuple[str, Level], list[Finding]] = {}
    for one in lint(facts.path, LintOptions(dynamic=False)).findings:
        by_file.setdefault((one.place.file, one.level), []).append(one)
    for found in by_file.values():
        yield _broken(found)


def _broken(found: list[Finding]) -> Broken:
    """One finding a file: its first line, and how many more."""
    first = min(found, key=lambda one: one.place.line)
    more = f" (and {len(found) - 1} more in this file)" if len(found) > 1 else ""
    return Broken(
        subject=f"{first.place.file}:{first.place.line}",
        found=f"{first.text}: {first.why}{more}",
        allowed="an import without CUDA",
        next_step=first.next_step,
        severity=None if first.level is Level.ERROR else Severity.WARNING,
    )


@rule(
    "imports-load",
    severity=Severity.ERROR,
    about="""Loading a library calls nothing of the driver and does not end the process: a static
    object that asks for a device makes `import` fail, or hang, on a machine with a broken driver,
    and a process that is forked later cannot use CUDA (B13, B47). Each library is loaded in a
    child under a driver that has no device and counts who calls it; torch is imported first where
    the library needs it: that of `--python`, or for the built wheels of `matrix.toml` the first
    release that each is for. One that does not load here is not judged.""",
    next_step="ask the driver when the first operation is called, never in a constructor",
    deep=True,
)
def _load(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    loaded, reason = load_libraries(facts)
    if reason:
        yield Unknown(subject=facts.file, reason=reason)
    for one in loaded:
        if one.calls:
            names = [f"{name} {count} times" for name, count in sorted(one.calls.items())]
            found = f"loading calls {', '.join(names[:_SHOWN])}"
            yield Broken(subject=one.name, found=found, allowed="no call into the driver")
        if one.died:
            found = f"loading ends the process: {one.died}"
            yield Broken(subject=one.name, found=found, allowed="a library that loads")
        elif one.refused:
            yield Unknown(subject=one.name, reason=f"does not load here: {one.refused}")
