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
# The cases that the issues of the line (2), the loops (3) and the audit (4) name.
NAMED = {
    2: "B03 B07 B08 B09 B10 B11 B12 B17 B19 B20 B21 B22 B33 B52 B53 B55 B59 B60 B61 B62 B64 B65 B66"
    " B67",
    3: "B04 B05 B13 B14 B15 B19 B28 B29 B30 B32 B33 B44 B45 B47 B48 B49 B72",
    4: "B01 B02 B03 B05 B08 B11 B12 B17 B20 B22 B23 B40 B41 B42 B43 B45 B56 B58 B60 B62 B64 B65 B67"
    " B69",
}


@cache
def names_in(path: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_cases_are_in_order_and_each_is_there_once() -> None:
    names = [row[0] for row in ROWS]
    assert names
    assert names == sorted(set(names))


@pytest.mark.parametrize("issue", NAMED)
def test_every_case_that_an_issue_names_has_a_row(issue: int) -> None:
    assert set(NAMED[issue].split()) - {row[0] for row in ROWS} == set()


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
