"""The one repair that is safe to make by machine: a constant asked of CUDA becomes a cached getter.

``NAME = torch.cuda.xxx()`` at the top of a module, read only inside its functions, is replaced by
a function with ``functools.cache``, and each read by a call of it. The file is edited in place by
source spans: nothing else in it changes. Everything less simple is refused with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab import records
from wheelfab.imports.bind import read_names
from wheelfab.imports.names import Scope
from wheelfab.imports.record import Finding, ImportReport
from wheelfab.imports.simple import (
    UnfitError,
    check_strangers,
    check_value,
    find_constant,
    find_uses,
)

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
Edit = tuple[tuple[int, int], bytes]  # from, to (bytes), and what stands there instead


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """A constant that became a getter."""

    file: str
    first: int  # lines of the old assignment
    last: int
    name: str
    getter: str
    uses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A finding that was left alone, and why."""

    finding: Finding
    reason: str


def fix(report: ImportReport) -> tuple[tuple[Fixed, ...], tuple[Refused, ...]]:
    """Repair what can be repaired in the files of ``report``; gives what changed and what did not.

    A file is written whole or left as it was, and only when its new text parses.
    """
    fixed: list[Fixed] = []
    refused: list[Refused] = []
    by_file: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if report.editable and finding.place.line:
            by_file.setdefault(finding.place.file, []).append(finding)
        else:
            why = "seen when it ran; no line to change" if report.editable else "not your own file"
            refused.append(Refused(finding=finding, reason=why))
    for file, findings in by_file.items():
        path = report.root / file
        others = [source for source in _sources(report) if source != path]
        new, changes, left = _repair(path.read_bytes(), findings, others)
        if changes:
            records.write_bytes(path, new)
        fixed.extend(changes)
        refused.extend(left)
    return tuple(fixed), tuple(refused)


def _sources(report: ImportReport) -> Iterator[Path]:
    for top in report.packages:
        folder = report.root / top
        yield from folder.rglob("*.py") if folder.is_dir() else [report.root / f"{top}.py"]


def _repair(
    data: bytes, findings: Sequence[Finding], others: Sequence[Path]
) -> tuple[bytes, list[Fixed], list[Refused]]:
    """The new text of one file, with what changed in it and what was refused."""
    edits: list[Edit] = []
    changes: list[Fixed] = []
    refused: list[Refused] = []
    for finding in sorted(findings, key=lambda one: one.place):
        if any(change.first <= finding.place.line <= change.last for change in changes):
            continue  # another call in a constant that becomes a getter anyway
        try:
            planned, change = _plan(data, finding, others)
        except UnfitError as error:
            refused.append(Refused(finding=finding, reason=str(error)))
            continue
        if any(change.getter == other.getter for other in changes):
            refused.append(Refused(finding=finding, reason=f"the name {change.getter} is taken"))
            continue
        edits.extend(edit for edit in planned if edit not in edits)
        changes.append(change)
    new = data
    for (start, end), replacement in sorted(edits, reverse=True):
        new = new[:start] + replacement + new[end:]
    ast.parse(new)
    return new, changes, refused


def _plan(data: bytes, finding: Finding, others: Sequence[Path]) -> tuple[list[Edit], Fixed]:
    tree, scope = _read(data, finding)
    statement, name = find_constant(tree, finding)
    value = statement.value
    if value is None:
        raise UnfitError("it has no value")
    check_value(value, scope)
    uses = find_uses(tree, statement, name)
    if not uses:
        raise UnfitError(f"{name} is not read in this module, so it is there for others")
    check_strangers(name, finding, others)
    getter = f"_get_{name.lower().lstrip('_')}"
    if getter.encode() in data:
        raise UnfitError(f"the name {getter} is taken")
    edits = [(_offsets(data, use), f"{getter}()".encode()) for use in uses]
    if any(data[start:end] != name.encode() for (start, end), _ in edits):
        raise UnfitError(
            f"{name} is read where its place in the file cannot be told, as in an f-string"
        )
    edits.append((_offsets(data, statement), _getter(data, statement, value, getter, scope)))
    if not _has_cache(tree, statement):
        edits.append(_import(data, tree))
    change = Fixed(
        file=finding.place.file,
        first=statement.lineno,
        last=statement.end_lineno or statement.lineno,
        name=name,
        getter=getter,
        uses=len(uses),
    )
    return edits, change


def _read(data: bytes, finding: Finding) -> tuple[ast.Module, Scope]:
    try:
        data.decode("utf-8")
        tree = ast.parse(data)
    except (UnicodeDecodeError, SyntaxError, ValueError) as error:
        raise UnfitError(f"the file is not plain UTF-8 Python: {error}") from error
    return tree, read_names(finding.module, finding.module, tree)[1]


def _getter(
    data: bytes, statement: ast.Assign | ast.AnnAssign, value: ast.expr, getter: str, scope: Scope
) -> bytes:
    start, end = _offsets(data, value)
    text = data[start:end]
    if not _holds_together(text):
        text = b"(" + text + b")"
    returned = b""
    if isinstance(statement, ast.AnnAssign):
        start, end = _offsets(data, statement.annotation)
        returned = b" -> " + data[start:end]
    cached = next((n for n, full in scope.names.aliases.items() if full == "functools.cache"), None)
    module = next(
        (n for n, full in scope.names.aliases.items() if full == "functools"), "functools"
    )
    decorator = cached or f"{module}.cache"
    end_line = b"\r\n" if b"\r\n" in data else b"\n"
    lines = (b"@" + decorator.encode(), b"def " + getter.encode() + b"()" + returned + b":")
    return end_line.join([*lines, b"    return " + text])


def _holds_together(text: bytes) -> bool:
    """Whether an expression of several lines needs no parentheses, which its span leaves out."""
    try:
        ast.parse(b"_ = " + text)
    except SyntaxError:
        return False
    return True


def _has_cache(tree: ast.Module, statement: ast.stmt) -> bool:
    for node in tree.body:
        if node is statement:
            return False
        if isinstance(node, ast.Import) and any(alias.name == "functools" for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "functools":
            return any(alias.name == "cache" for alias in node.names)
    return False


def _import(data: bytes, tree: ast.Module) -> Edit:
    end_line = b"\r\n" if b"\r\n" in data else b"\n"
    for node in tree.body:
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and node.module != "__future__"
        ):
            start, _ = _offsets(data, node)
            return (start, start), b"import functools" + end_line
    raise UnfitError("nothing is imported at the top level, so there is no place for an import")


def _offsets(data: bytes, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Where ``node`` lies in ``data``, in bytes; ``ast`` counts columns in UTF-8 bytes."""
    starts = [0]
    for line in _LINE.findall(data):
        starts.append(starts[-1] + len(line))
    bom = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    start = starts[node.lineno - 1] + node.col_offset + (bom if node.lineno == 1 else 0)
    return start, starts[end_line - 1] + end_column + (bom if end_line == 1 else 0)
