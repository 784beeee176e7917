"""Why importing a package reaches a module: the imports in the order in which Python runs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wheelfab.imports.facts import Event
from wheelfab.imports.facts import Kind as EventKind
from wheelfab.imports.package import Package
from wheelfab.imports.reach import Reach
from wheelfab.imports.record import Why


@dataclass(frozen=True, slots=True)
class _Frame:
    module: str
    events: Iterator[Event]
    importer: tuple[str, Event] | None  # the module and the line of it that imported this one


def explain(package: Package, reach: Reach, start: str, wanted: str) -> Why:
    """The chain of imports from ``start`` to the first line that calls into ``wanted``.

    Where no line does, the chain to the first import of ``wanted`` or of a package above it.
    """
    touching = {
        key: [finding for finding in found if _below(finding.call, wanted)]
        for key, found in reach.touching().items()
    }
    first_import: list[tuple[str, Event] | None] | None = None
    stack: list[_Frame] = []
    started: set[str] = set()
    _enter(package, start, None, stack, started)
    while stack:
        frame = stack[-1]
        event = next(frame.events, None)
        if event is None:
            stack.pop()
            continue
        facts = package.modules[frame.module]
        found = touching.get((facts.file, event.span.line), [])
        if found:
            calls = tuple(str(step) for step in found[0].chain)
            return Why(
                wanted=wanted,
                steps=(*_steps(package, start, (frame.importer for frame in stack)), *calls),
                answer=f"{found[0].place}: {found[0].text}",
            )
        if event.kind is EventKind.IMPORT:
            line = (frame.module, event)
            if first_import is None and _leads(event.name, wanted):
                first_import = [*(one.importer for one in stack), line]
            module = _imported(package, event.name)
            if module:
                _enter(package, module, line, stack, started)
    if first_import is None:
        return Why(wanted=wanted, steps=(), answer=f"importing {start} never reaches {wanted}")
    return Why(
        wanted=wanted,
        steps=_steps(package, start, first_import),
        answer=f"importing {start} imports it and calls nothing in {wanted}",
    )


def _imported(package: Package, name: str) -> str:
    """The module of the package that ``import name`` or ``from .. import ..`` runs, or nothing."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in package.modules), "")


def _enter(
    package: Package,
    module: str,
    line: tuple[str, Event] | None,
    stack: list[_Frame],
    started: set[str],
) -> None:
    """Start ``module`` and, to run before it, the packages that it is in."""
    parts = module.split(".")
    chain = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    fresh = [name for name in chain if name in package.modules and name not in started]
    for name in reversed(fresh):
        started.add(name)
        stack.append(_Frame(name, iter(package.modules[name].events), line))


def _steps(
    package: Package, start: str, importers: Iterable[tuple[str, Event] | None]
) -> tuple[str, ...]:
    """The lines that led here; a package and the module in it were started by the same one."""
    lines: list[str] = []
    for importer in importers:
        if importer is None:
            line = f"import {start}"
        else:
            module, event = importer
            where = f"{package.modules[module].file}:{event.span.line}"
            line = f"{where}: {package.shown(module, event)}"
        if lines[-1:] != [line]:
            lines.append(line)
    return tuple(lines)


def _below(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(wanted + ".")


def _leads(name: str, wanted: str) -> bool:
    return _below(name, wanted) or wanted.startswith(name + ".")
