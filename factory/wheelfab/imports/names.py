"""Names: what each one in a module stands for, told from the source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from wheelfab.imports.facts import ROOTS, Names

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

    def _name(self, name: str) -> str | None:
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


def truth(test: ast.expr, scope: Scope) -> bool | None:
    """What ``test`` is on Linux with a CUDA build when a module is imported; ``None``: it depends."""
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


def needs(test: ast.expr, scope: Scope, wanted: bool) -> tuple[tuple[str, bool], ...]:
    """The named values that must be as given for ``test`` to come out as ``wanted``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return needs(operand, scope, not wanted)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is wanted:
            return tuple(need for value in values for need in needs(value, scope, wanted))
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


def read_names(module: str, package: str, tree: ast.Module) -> tuple[Names, Scope]:
    """The names that the top level of ``tree`` binds, and the scope its statements run in."""
    names = Names(module=module, package=package)
    scope = Scope(names=names)
    _bind(tree.body, scope, top=True)
    return names, scope


def function_scope(node: Function, qualname: str, owner: str, outer: Scope) -> Scope:
    """The scope that the body of ``node`` runs in."""
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    first = parameters[0].arg if owner and not static and parameters else outer.self_name
    scope = Scope(
        names=outer.names,
        qualname=qualname,
        owner=owner or outer.owner,
        self_name=first,
        hidden=set(outer.hidden) | {parameter.arg for parameter in parameters},
        aliases=dict(outer.aliases),
        inner=dict(outer.inner),
        constants=dict(outer.constants),
    )
    for parameter in parameters:
        scope.aliases.pop(parameter.arg, None)
        scope.constants.pop(parameter.arg, None)
    _bind(node.body, scope, top=False)
    return scope


def _bind(body: Sequence[ast.stmt], scope: Scope, *, top: bool) -> None:
    for node in _statements(body, scope):
        match node:
            case ast.Import(names=imported):
                for alias in imported:
                    bound = alias.asname or alias.name.split(".")[0]
                    _alias(scope, bound, alias.name if alias.asname else bound, top=top)
            case ast.ImportFrom():
                _bind_from(node, scope, top=top)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                _bind_definition(name, scope, top=top)
            case ast.ClassDef(name=name):
                _bind_definition(name, scope, top=top)
                if top:
                    _bind_class(node, scope)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _bind_value(target, value, scope, top=top)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    _bind_value(target, value, scope, top=top)
            case ast.For(target=target, iter=iterated):
                _bind_loop(target, iterated, scope, top=top)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        _hide(item.optional_vars, scope, top=top)
            case ast.AugAssign(target=target):
                _hide(target, scope, top=top)


def _statements(body: Iterable[ast.stmt], scope: Scope) -> Iterator[ast.stmt]:
    """The statements of a scope, also inside ``if``, ``try``, ``for`` and ``with``."""
    stack = list(reversed(list(body)))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, SCOPES):
            continue
        if isinstance(node, ast.If):
            known = truth(node.test, scope)
            blocks = [] if known is False else [node.body]
            blocks += [] if known is True else [node.orelse]
        else:
            blocks = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
            blocks += [case.body for case in getattr(node, "cases", [])]
            blocks += [handler.body for handler in getattr(node, "handlers", [])]
        for block in reversed(blocks):
            stack.extend(reversed(block))


def _alias(scope: Scope, bound: str, name: str, *, top: bool) -> None:
    table = scope.names.aliases if top else scope.aliases
    table.setdefault(bound, name)
    if top:
        scope.names.bound.add(bound)


def _bind_from(node: ast.ImportFrom, scope: Scope, *, top: bool) -> None:
    base = absolute(scope.names.package, node.level, node.module)
    if node.module == "__future__":
        scope.names.lazy_annotations |= any(a.name == "annotations" for a in node.names)
        return
    for alias in node.names:
        if alias.name != "*":
            _alias(scope, alias.asname or alias.name, f"{base}.{alias.name}", top=top)
        elif top:
            scope.names.stars.append(base)


def _bind_definition(name: str, scope: Scope, *, top: bool) -> None:
    if top:
        scope.names.functions.add(name)
        scope.names.bound.add(name)
    else:
        scope.inner[name] = f"{scope.qualname}.<locals>.{name}"


def _bind_class(node: ast.ClassDef, scope: Scope) -> None:
    names = scope.names
    names.functions.discard(node.name)
    names.classes[node.name] = tuple(
        name for base in node.bases if (name := scope.dotted(base)) is not None
    )
    for item in _statements(node.body, scope):
        if isinstance(item, Function):
            names.functions.add(f"{node.name}.{item.name}")


def _bind_value(target: ast.expr, value: ast.expr, scope: Scope, *, top: bool) -> None:
    if not isinstance(target, ast.Name):
        _hide(target, scope, top=top)
        return
    name = target.id
    scope.constants.setdefault(name, []).append(value)
    table = scope.names.aliases if top else scope.aliases
    called = scope.dotted(value)
    if called is not None and called.split(".")[0] in ROOTS:
        table.setdefault(name, called)
    if not top:
        scope.hidden.add(name)
        return
    scope.names.bound.add(name)
    if isinstance(value, ast.Call) and (made := scope.dotted(value.func)) is not None:
        scope.names.instances.setdefault(name, made)
    if name == "__all__" and isinstance(value, ast.List | ast.Tuple):
        items = (item.value for item in value.elts if isinstance(item, ast.Constant))
        scope.names.exported = frozenset(item for item in items if isinstance(item, str))
    known = flag(value, scope)
    if known is None or name in scope.names.flags:
        scope.names.flags.pop(name, None)
        scope.names.fickle.add(name)
    elif name not in scope.names.fickle:
        scope.names.flags[name] = known
    functions = _functions_in(value, scope)
    if functions:
        scope.names.dispatch[name] = functions


def _functions_in(value: ast.expr, scope: Scope) -> tuple[str, ...]:
    if isinstance(value, ast.Dict):
        items: list[ast.expr] = value.values
    elif isinstance(value, ast.List | ast.Tuple | ast.Set):
        items = value.elts
    else:
        return ()
    names = (scope.dotted(item) for item in items if isinstance(item, ast.Name | ast.Attribute))
    return tuple(name for name in names if name is not None)


def _bind_loop(target: ast.expr, iterated: ast.expr, scope: Scope, *, top: bool) -> None:
    _hide(target, scope, top=top)
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            scope.loops[node.id] = iterated


def _hide(target: ast.expr, scope: Scope, *, top: bool) -> None:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if top:
                scope.names.bound.add(node.id)
            else:
                scope.hidden.add(node.id)
