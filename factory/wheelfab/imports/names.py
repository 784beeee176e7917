"""Names: what each one in a module stands for, told from the source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from wheelfab.imports.facts import Names

Function = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LINUX = {"sys.platform": "linux", "os.name": "posix", "os.sep": "/"}


def is_type_checking(test: ast.expr) -> bool:
    """``TYPE_CHECKING``, however it is spelt."""
    if isinstance(test, ast.Attribute):
        return test.attr == "TYPE_CHECKING"
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def absolute(package: str, level: int, module: str | None) -> str:
    """The absolute name of a relative import from ``package``; empty when it leaves the top."""
    if not level:
        return module or ""
    parts = package.split(".")
    kept = parts[: len(parts) - (level - 1)]
    return ".".join([*kept, *([module] if module else [])]) if kept else ""


@dataclass(kw_only=True, slots=True)
class Scope:
    """The names that an expression sees: its function's, then those of the module."""

    names: Names
    qualname: str = ""  # of the function; empty at the top level
    owner: str = ""  # the class whose body or method this is
    self_name: str = ""  # the first parameter of a method
    hidden: set[str] = field(default_factory=set)  # bound in the function to who knows what
    aliases: dict[str, str] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)  # nested functions and classes
    loops: dict[str, ast.expr] = field(default_factory=dict)  # loop variable -> what is run through
    constants: dict[str, list[ast.expr]] = field(default_factory=dict)

    def dotted(self, node: ast.expr) -> str | None:
        """The qualified name that ``node`` stands for, or ``None``."""
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=value, attr=attr):
                base = self.dotted(value)
                return f"{base}.{attr}" if base else None
            case ast.Call(
                func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attr)), *_]
            ):
                base = self.dotted(value)
                return f"{base}.{attr}" if base else None
            case ast.Call(func=ast.Attribute(attr="get_device_module"), args=args):
                kind = args[0].value if args and isinstance(args[0], ast.Constant) else "cuda"
                return "torch.cuda" if kind == "cuda" else None
            case ast.Call(func=func, args=[ast.Constant(value=str(module)), *_]):
                loader = self.dotted(func)
                return module if loader == "importlib.import_module" else None
        return None

    def _name(self, name: str) -> str | None:  # noqa: PLR0911 (a scope a return)
        if name == self.self_name and self.owner:
            return f"{self.names.module}.{self.owner}"
        if name in self.aliases:
            return self.aliases[name]
        if name in self.inner:
            return f"{self.names.module}.{self.inner[name]}"
        if name in self.hidden:
            return None
        names = self.names
        if name in names.aliases:
            return names.aliases[name]
        if name in names.functions or name in names.classes or name in names.bound or names.stars:
            return f"{names.module}.{name}"
        return None

    def values(self, name: str) -> Iterator[ast.expr]:
        """The expressions that ``name`` is bound to, here or at the module's top level."""
        if name in self.loops:
            source = self.loops[name]
            items = source.elts if isinstance(source, ast.Tuple | ast.List | ast.Set) else [source]
            yield from items
        if name not in self.hidden or name in self.constants:
            yield from self.constants.get(name, ())


def truth(test: ast.expr, scope: Scope) -> bool | None:  # noqa: PLR0911 (a case an expression)
    """What ``test`` is on Linux with a CUDA build as a module is imported; ``None``: it depends."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            known = truth(operand, scope)
            return None if known is None else not known
        case ast.BoolOp(op=op, values=values):
            known_values = [truth(value, scope) for value in values]
            deciding = isinstance(op, ast.Or)
            if deciding in known_values:
                return deciding
            return None if None in known_values else not deciding
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(left, op, right, scope)
        case ast.Call(
            func=ast.Attribute(value=value, attr="startswith"), args=[ast.Constant(value=lit)]
        ):
            known_text = _LINUX.get(scope.dotted(value) or "")
            return known_text.startswith(str(lit)) if known_text else None
    if is_type_checking(test):
        return False
    return False if scope.dotted(test) == "torch.version.hip" else None


def needs(test: ast.expr, scope: Scope, *, wanted: bool) -> tuple[tuple[str, bool], ...]:
    """The named values that must be as given for ``test`` to come out as ``wanted``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return needs(operand, scope, wanted=not wanted)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is wanted:
            return tuple(need for value in values for need in needs(value, scope, wanted=wanted))
    name = value_name(test, scope)
    return () if name is None else ((name, wanted),)


def value_name(value: ast.expr, scope: Scope) -> str | None:
    """The name whose truth ``value`` has: its own, or that of the function it calls bare."""
    called = isinstance(value, ast.Call) and not value.args and not value.keywords
    return scope.dotted(value.func if called and isinstance(value, ast.Call) else value)


def flag(value: ast.expr, scope: Scope) -> bool | str | None:
    """What is known of the truth of ``value``: itself, or the name that has it."""
    known = truth(value, scope)
    return known if known is not None else value_name(value, scope)


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, scope: Scope) -> bool | None:
    same = isinstance(op, ast.Eq | ast.Is)
    if not same and not isinstance(op, ast.NotEq | ast.IsNot):
        return None
    name = scope.dotted(left) or (left.id if isinstance(left, ast.Name) else "")
    if not isinstance(right, ast.Constant):
        return None
    if name == "torch.version.hip":
        return (right.value is None) == same
    if name == "__name__" or name.endswith(".__name__"):
        return not same if right.value == "__main__" else None
    known = _LINUX.get(name)
    if isinstance(left, ast.Call) and scope.dotted(left.func) == "platform.system":
        known = "Linux"
    return None if known is None else (known == right.value) == same
