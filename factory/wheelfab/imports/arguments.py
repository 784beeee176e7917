"""The arguments of a call, as far as the rules ask about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from wheelfab.imports.facts import Arguments
from wheelfab.imports.names import Scope

_CUDA = re.compile(r"cuda(:\d+)?")


def read_arguments(call: ast.Call, scope: Scope) -> Arguments:
    """What the rules need of the arguments of ``call``."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    by_name = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    devices = [by_name[key] for key in ("device", "device_type", "map_location") if key in by_name]
    first = bool(call.args) and _is_cuda(scope, call.args[0])
    literals = [text for value in values for text in _literals(scope, value)]
    return Arguments(
        literals=tuple(literals[:20]),
        keywords=tuple(by_name),
        true=tuple(key for key, value in by_name.items() if _constant(value) is True),
        false=tuple(key for key, value in by_name.items() if _constant(value) is False),
        cuda=any(_is_cuda(scope, device) for device in devices)
        or (not devices and any(_is_cuda(scope, value) for value in call.args[:2])),
        first_cuda=first,
        count=len(values),
    )


def _literals(scope: Scope, value: ast.expr, depth: int = 3) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name) and depth:
            for bound in scope.values(node.id):
                yield from _literals(scope, bound, depth - 1)


def _is_cuda(scope: Scope, value: ast.expr, depth: int = 3) -> bool:
    """Whether ``value`` is, or may be, the name of a CUDA device or such a device."""
    match value:
        case ast.Constant(value=str(text)):
            return _CUDA.fullmatch(text) is not None
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text.startswith("cuda:")
        case ast.IfExp(body=body, orelse=orelse):
            return _is_cuda(scope, body, depth) or _is_cuda(scope, orelse, depth)
        case ast.Call(func=func, args=[first, *_]):
            return scope.dotted(func) == "torch.device" and _is_cuda(scope, first, depth)
        case ast.Name(id=name) if depth:
            return any(_is_cuda(scope, bound, depth - 1) for bound in scope.values(name))
    return False


def _constant(value: ast.expr) -> object:
    return value.value if isinstance(value, ast.Constant) else None
