"""docs/cases.md names tests that exist, and at least one for every case."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (ROOT / "docs" / "cases.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| B\d\d ", line)
]


@cache
def names_in(path: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_cases_are_in_order_and_each_is_there_once() -> None:
    names = [row[0] for row in ROWS]
    assert names
    assert names == sorted(set(names))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_case_is_held_by_tests_that_exist(row: list[str]) -> None:
    _, failure, prevented, tests = row
    assert failure.endswith(".")
    assert prevented.endswith(".")
    named = re.findall(r"`([\w/.]+)::(\w+)`", tests)
    assert named
    for path, name in named:
        assert (ROOT / path).is_file(), path
        assert name in names_in(path), f"{path}::{name}"
