"""Whether a constant is the simple pattern that can be repaired; all else is an error here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelfab.imports.names import SCOPES, Scope
from wheelfab.imports.record import Finding
from wheelfab.suggest import joined

_PURE = (
    ast.Call,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.Subscript,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.IfExp,
    ast.Tuple,
    ast.keyword,
    ast.operator,
    ast.boolop,
    ast.unaryop,
    ast.cmpop,
    ast.expr_context,
)
_PLAIN = frozenset(
    """staticmethod classmethod property setter cached_property cache lru_cache wraps contextmanager
    abstractmethod override overload no_grad inference_mode""".split()  # noqa: SIM905
)


class UnfitError(Exception):
    """The pattern is not the simple one; the message says why."""


def find_constant(tree: ast.Module, finding: Finding) -> tuple[ast.Assign | ast.AnnAssign, str]:
    """The assignment at the top level that ``finding`` is in, and the name that it binds."""
    if len(finding.chain) > 1:
        raise UnfitError("the call is in a function that is called at the top level")
    line = finding.place.line
    for node in tree.body:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        if not first <= line <= (node.end_lineno or node.lineno):
            continue
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                return node, name
            case ast.Assign():
                raise UnfitError("it assigns to more than one plain name")
            case _:
                raise UnfitError("not a constant `NAME = ...` at the top level of the module")
    raise UnfitError("the file has changed since it was read")


def check_value(value: ast.expr, scope: Scope) -> None:
    """Refuse a value that can mean something else when it is asked for later."""
    for node in ast.walk(value):
        if not isinstance(node, _PURE):
            raise UnfitError(f"its value has a {type(node).__name__} in it")
        if isinstance(node, ast.Name) and node.id not in scope.names.aliases:
            raise UnfitError(f"its value depends on {node.id}, which is no import")
        if isinstance(node, ast.Name) and node.id in scope.constants:
            raise UnfitError(f"{node.id} is imported and assigned")
        called = scope.dotted(node.func) if isinstance(node, ast.Call) else "torch"
        if called is None or called.split(".")[0] != "torch":
            raise UnfitError("its value calls something other than torch")


def find_uses(tree: ast.Module, statement: ast.stmt, name: str) -> list[ast.Name]:
    """The reads of ``name``, all of them inside functions of plain Python."""
    uses: list[ast.Name] = []
    for node, inside in _walk(tree, statement):
        if isinstance(node, ast.Constant) and node.value == name:
            raise UnfitError(f"{name} is exported in __all__ or looked up by its name as text")
        bound = _binds(node)
        if name in bound:
            raise UnfitError(
                f"{name} is bound a second time, in line {getattr(node, 'lineno', '?')}"
            )
        if isinstance(node, ast.Name) and node.id == name:
            if not isinstance(node.ctx, ast.Load):
                raise UnfitError(f"{name} is assigned again or deleted, in line {node.lineno}")
            if not inside:
                raise UnfitError(
                    f"{name} is read while the module is imported, in line {node.lineno}"
                )
            uses.append(node)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            _check_function(function, uses, name)
    return uses


def _check_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef, uses: Sequence[ast.Name], name: str
) -> None:
    """Refuse a read in a function that more than Python may run, as ``triton.jit`` does."""
    inside = {id(node) for node in ast.walk(function)}
    if not any(id(use) in inside for use in uses):
        return
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        last = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "?")
        if last not in _PLAIN:
            reason = f"{name} is read in {function.name}, which @{last} may compile"
            raise UnfitError(reason)


def _binds(node: ast.AST) -> tuple[str, ...]:  # noqa: PLR0911 (a case a node)
    match node:
        case ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return tuple(names)
        case ast.alias(name=name, asname=asname):
            return (asname or name.split(".")[0],)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return (name,)
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return (name,)
    return ()


def _walk(tree: ast.Module, without: ast.stmt) -> Iterator[tuple[ast.AST, bool]]:
    """Every node but those of ``without``, and whether it only runs when a function is called."""
    stack: list[tuple[ast.AST, bool]] = [
        (node, False) for node in reversed(tree.body) if node is not without
    ]
    while stack:
        node, inside = stack.pop()
        yield node, inside
        late: list[ast.AST] = []
        if isinstance(node, SCOPES) and not isinstance(node, ast.ClassDef):
            late = list(node.body) if isinstance(node.body, list) else [node.body]
        stack.extend(
            (child, inside or any(child is one for one in late))
            for child in reversed(list(ast.iter_child_nodes(node)))
        )


def check_strangers(name: str, finding: Finding, others: Sequence[Path]) -> None:
    """Refuse when another module of the package may read ``name`` of this one."""
    own = finding.module.rpartition(".")[2]
    word = re.compile(rf"\b{re.escape(name)}\b".encode())
    users = []
    for path in others:
        data = path.read_bytes()
        if word.search(data) and re.search(rf"\b{re.escape(own)}\b".encode(), data):
            users.append(path.name)
    if users:
        raise UnfitError(f"{name} may be read by another module: {joined(users[:3])}")
