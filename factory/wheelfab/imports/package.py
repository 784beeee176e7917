"""A package as its source tells it: modules, the functions in them, what each name resolves to."""

from __future__ import annotations

import ast
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from wheelfab.imports.facts import Event, FunctionFacts, ModuleFacts, Names, Span
from wheelfab.imports.functions import scan_functions
from wheelfab.imports.record import Unchecked
from wheelfab.imports.scan import scan_module

SOURCE_LIMIT = 8 << 20  # bytes of one source file
MODULE_LIMIT = 20_000
_HOPS = 12  # re-exports followed from one name
_TEXT = 100  # characters of a piece of source shown
_CACHED = 32  # sources kept for showing


class Kind(StrEnum):
    """What a qualified name turned out to be."""

    FUNCTION = "function"
    CLASS = "class"
    MODULE = "module"
    VALUE = "value"
    OUTSIDE = "outside"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A qualified name followed through re-exports to what it stands for."""

    kind: Kind
    module: str = ""
    name: str = ""  # in its module; for ``OUTSIDE`` the whole name
    asked: str | None = None  # the attribute that a module's ``__getattr__`` is asked for


_UNKNOWN = Resolved(kind=Kind.UNKNOWN)


@dataclass(kw_only=True, slots=True)
class Package:
    """The modules of a target; facts about function bodies are read when first asked for."""

    root: Path
    tops: frozenset[str]
    modules: dict[str, ModuleFacts] = field(default_factory=dict)
    unreadable: list[Unchecked] = field(default_factory=list)
    _functions: dict[str, dict[str, FunctionFacts]] = field(default_factory=dict)
    _known: dict[str, bool | None] = field(default_factory=dict)
    _sources: OrderedDict[str, list[bytes]] = field(default_factory=OrderedDict)

    def add(self, path: Path, name: str) -> None:
        """Read the module ``name`` in ``path``; one that cannot be read is noted, never fatal."""
        file = path.relative_to(self.root).as_posix()
        try:
            tree = _parse(path)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
            self.unreadable.append(Unchecked(what=file, reason=reason))
            return
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        try:
            self.modules[name] = scan_module(name, package, file, tree, self.tops)
        except RecursionError:
            self.unreadable.append(Unchecked(what=file, reason="nested too deeply"))

    def function(self, module: str, qualname: str) -> FunctionFacts | None:
        """What a function runs when it is called; ``None`` when there is no such function."""
        if module not in self._functions:
            facts = self.modules[module]
            try:
                tree = _parse(self.root / facts.file)
                self._functions[module] = scan_functions(facts.names, tree, self.tops)
            except (SyntaxError, ValueError, RecursionError, OSError):
                self._functions[module] = {}
        return self._functions[module].get(qualname)

    def resolve(self, name: str, hops: int = _HOPS) -> Resolved:
        """What ``name`` stands for: in this package, or outside of it."""
        parts = name.split(".")
        if parts[0] not in self.tops:
            return Resolved(kind=Kind.OUTSIDE, name=name)
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self.modules:
                rest = parts[length:]
                if not rest:
                    return Resolved(kind=Kind.MODULE, module=module)
                return self._member(self.modules[module].names, rest, hops)
        return _UNKNOWN

    def _member(self, names: Names, rest: list[str], hops: int) -> Resolved:
        found = self._bound(names, rest, hops) if hops else _UNKNOWN
        return found if found is not None else self._elsewhere(names, rest, hops)

    def _bound(self, names: Names, rest: list[str], hops: int) -> Resolved | None:
        """What the module itself binds; ``None`` when it binds no such name."""
        module, name, head = names.module, ".".join(rest), rest[0]
        if name in names.functions or "<locals>" in rest:
            return Resolved(kind=Kind.FUNCTION, module=module, name=name)
        if name in names.classes:
            return Resolved(kind=Kind.CLASS, module=module, name=name)
        if head in names.classes and len(rest) == 2:
            return self._inherited(names.classes[head], rest[1], hops)
        for table in (names.aliases, names.instances):
            if head in table and (table is names.aliases or len(rest) > 1):
                return self.resolve(".".join([table[head], *rest[1:]]), hops - 1)
        if name in names.flags and name not in names.fickle:
            return Resolved(kind=Kind.VALUE, module=module, name=name)
        return _UNKNOWN if head in names.bound or head in names.functions else None

    def _elsewhere(self, names: Names, rest: list[str], hops: int) -> Resolved:
        """What a star import or the module's ``__getattr__`` gives for a name."""
        for star in names.stars:
            if star == names.module:
                continue
            found = self.resolve(".".join([star, *rest]), hops - 1)
            if found.kind in (Kind.FUNCTION, Kind.CLASS, Kind.MODULE) and found.asked is None:
                return found
            if found.kind is Kind.OUTSIDE and star.split(".")[0] in self.tops:
                return found
        if "__getattr__" in names.functions:
            asked = rest[0]
            return Resolved(
                kind=Kind.FUNCTION, module=names.module, name="__getattr__", asked=asked
            )
        return _UNKNOWN

    def _inherited(self, bases: tuple[str, ...], method: str, hops: int) -> Resolved:
        for base in bases:
            found = self.resolve(f"{base}.{method}", hops - 1)
            if found.kind is Kind.FUNCTION and found.asked is None:
                return found
        return _UNKNOWN

    def known(self, name: str, hops: int = _HOPS) -> bool | None:
        """Whether ``name``, or what calling it returns, is known to be true or false."""
        if hops == 0:
            return None
        if name not in self._known:
            self._known[name] = None  # what asks itself knows nothing
            self._known[name] = self._truth(name, hops)
        return self._known[name]

    def _truth(self, name: str, hops: int) -> bool | None:
        found: bool | str | None = None
        resolved = self.resolve(name)
        if resolved.kind is Kind.VALUE:
            found = self.modules[resolved.module].names.flags.get(resolved.name)
        elif resolved.kind is Kind.FUNCTION and resolved.asked is None:
            facts = self.function(resolved.module, resolved.name)
            found = facts.value if facts is not None else None
        if isinstance(found, str):
            return self.known(found, hops - 1)
        return found

    def can_run(self, event: Event) -> bool:
        """Whether nothing is known that keeps ``event`` from running on a CUDA build."""
        return all(
            self.known(name) is not (not wanted)
            for condition in event.when
            for name, wanted in condition.needs
        )

    def methods(self, made: Resolved, wanted: tuple[str, ...]) -> list[Resolved]:
        """The methods of a class that run by themselves, own or inherited, of those ``wanted``."""
        name = f"{made.module}.{made.name}"
        found = (self.resolve(f"{name}.{method}") for method in wanted)
        return [one for one in found if one.kind is Kind.FUNCTION and one.asked is None]

    def text(self, module: str, span: Span) -> str:
        """The source in ``span``, on one line and cut to a length that can be shown."""
        file = self.modules[module].file
        if file not in self._sources:
            self._sources[file] = source_lines((self.root / file).read_bytes())
            if len(self._sources) > _CACHED:
                self._sources.popitem(last=False)
        self._sources.move_to_end(file)
        lines = self._sources[file][span.line - 1 : span.end_line]
        if not lines:
            return ""
        lines[-1] = lines[-1][: span.end_column]
        lines[0] = lines[0][span.column :]
        line = " ".join(b"".join(lines).decode(errors="replace").split())
        return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"

    def shown(self, module: str, event: Event) -> str:
        """The source of an event."""
        return self.text(module, event.span)


def source_lines(data: bytes) -> list[bytes]:
    """The lines of a source, ends kept, split where Python splits them and nowhere else."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").splitlines(keepends=True)


def _parse(path: Path) -> ast.Module:
    with path.open("rb") as file:
        data = file.read(SOURCE_LIMIT + 1)
    if len(data) > SOURCE_LIMIT:
        raise ValueError(f"over {SOURCE_LIMIT} bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in someone's source is no news here
        return ast.parse(data)
