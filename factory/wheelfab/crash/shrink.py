"""Leaving out what a crash does not need: environment variables, statements of a script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shrink(items: Sequence[Item], still: Callable[[tuple[Item, ...]], bool]) -> tuple[Item, ...]:
    """The fewest of ``items`` that are found with which ``still`` holds, in their order.

    All are left out first, then halves, quarters and single ones. ``still`` decides when to stop:
    once it answers no for good, what is left stays.
    """
    left = tuple(items)
    if not left or still(()):
        return ()
    size = len(left) // 2
    while size >= 1:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + size :]
            if fewer and still(fewer):
                left = fewer
            else:
                start += size
        size //= 2
    return left


def statements_of(source: str) -> tuple[str, ...]:
    """The top-level statements of ``source``; empty when it cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = (ast.get_source_segment(source, node) for node in tree.body)
    return tuple(text for text in found if text)


def script_of(statements: Sequence[str]) -> str:
    """``statements`` as one script, on one line when each of them is a simple one."""
    trees = [ast.parse(text).body[0] for text in statements]
    simple = all("\n" not in text for text in statements) and not any(
        hasattr(tree, "body") for tree in trees
    )
    return ("; " if simple else "\n").join(statements)
