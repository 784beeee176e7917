"""What each function of a module runs when it is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from wheelfab.imports.bind import function_scope, read_names
from wheelfab.imports.facts import FunctionFacts, Names
from wheelfab.imports.names import Function, Scope, flag
from wheelfab.imports.scan import Walk


def scan_functions(
    names: Names, tree: ast.Module, tops: frozenset[str]
) -> dict[str, FunctionFacts]:
    """What each function of a module runs when it is called, by qualified name."""
    _, scope = read_names(names.module, names.package, tree)
    found: dict[str, FunctionFacts] = {}
    _scan_definitions(tree.body, scope, tops, found)
    return found


def _scan_definitions(
    body: Sequence[ast.stmt],
    outer: Scope,
    tops: frozenset[str],
    found: dict[str, FunctionFacts],
    *,
    prefix: str = "",
    owner: str = "",
) -> None:
    for node in _definitions(body):
        qualname = f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            _scan_definitions(node.body, outer, tops, found, prefix=f"{qualname}.", owner=qualname)
            continue
        scope = function_scope(node, qualname, owner, outer)
        walk = Walk(scope, tops, special=node if qualname == "__getattr__" else None)
        walk.block(node.body, ())
        facts = FunctionFacts(
            events=tuple(walk.events),
            returned=tuple(walk.returned),
            late=isinstance(node, ast.AsyncFunctionDef) or walk.yields,
            value=_value(node, scope),
        )
        # overloads and alternatives of one name: what any of them runs
        before = found.get(qualname)
        if before is not None:
            facts = FunctionFacts(
                events=before.events + facts.events,
                returned=before.returned + facts.returned,
                late=before.late and facts.late,
            )
        found[qualname] = facts
        _scan_definitions(node.body, scope, tops, found, prefix=f"{qualname}.<locals>.")


def _definitions(body: Sequence[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, Function | ast.ClassDef):
            yield node
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            stack.extend(
                child
                for child in reversed(list(ast.iter_child_nodes(node)))
                if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
            )


def _value(node: Function, scope: Scope) -> bool | str | None:
    """What a function that does nothing but return something returns, as far as it is known."""
    body = [item for item in node.body if not isinstance(item, ast.Import | ast.ImportFrom)]
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    return flag(body[0].value, scope)
