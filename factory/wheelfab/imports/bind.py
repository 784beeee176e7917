"""What a module and a function bind: imports, definitions, constants, tables of functions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from wheelfab.imports.facts import ROOTS, Names
from wheelfab.imports.names import SCOPES, Function, Scope, absolute, flag, truth


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


def _bind(  # noqa: C901 (a case a statement)
    body: Sequence[ast.stmt], scope: Scope, *, top: bool
) -> None:
    for node in _statements(body, scope):
        match node:
            case ast.Import() | ast.ImportFrom():
                _bind_import(node, scope, top=top)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                _bind_definition(node, scope, top=top)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _bind_value(target, value, scope, top=top)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                _bind_value(target, value, scope, top=top)
            case ast.For():
                _bind_loop(node, scope, top=top)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for target in filter(None, (item.optional_vars for item in items)):
                    _hide(target, scope, top=top)
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


def _bind_import(node: ast.Import | ast.ImportFrom, scope: Scope, *, top: bool) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            _alias(scope, bound, alias.name if alias.asname else bound, top=top)
        return
    base = absolute(scope.names.package, node.level, node.module)
    if node.module == "__future__":
        scope.names.lazy_annotations |= any(a.name == "annotations" for a in node.names)
        return
    for alias in node.names:
        if alias.name != "*":
            _alias(scope, alias.asname or alias.name, f"{base}.{alias.name}", top=top)
        elif top:
            scope.names.stars.append(base)


def _bind_definition(node: Function | ast.ClassDef, scope: Scope, *, top: bool) -> None:
    if not top:
        scope.inner[node.name] = f"{scope.qualname}.<locals>.{node.name}"
        return
    scope.names.bound.add(node.name)
    if isinstance(node, ast.ClassDef):
        _bind_class(node, scope)
    else:
        scope.names.functions.add(node.name)


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
    again = len(scope.constants[name]) > 1
    table = scope.names.aliases if top else scope.aliases
    called = scope.dotted(value)
    if called is not None and called.split(".")[0] in ROOTS:
        table.setdefault(name, called)
    if again and table.get(name, "").startswith("torch.version."):
        del table[name]  # it may be the other value
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


def _bind_loop(loop: ast.For, scope: Scope, *, top: bool) -> None:
    _hide(loop.target, scope, top=top)
    for node in ast.walk(loop.target):
        if isinstance(node, ast.Name):
            scope.loops[node.id] = loop.iter


def _hide(target: ast.expr, scope: Scope, *, top: bool) -> None:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if top:
                scope.names.bound.add(node.id)
            else:
                scope.hidden.add(node.id)
