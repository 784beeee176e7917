"""Imports only go down: the graph of wheelfab's modules has no cycle and respects the floors."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import wheelfab

ROOT = Path(wheelfab.__file__).parent
FLOORS = (
    {"errors", "records", "versions", "suggest", "arch", "ahead", "facts", "host", "slots"},
    {"console", "run", "machine", "flock", "archive", "zipheaders", "inflate", "manifest", "lz4"},
    {"model", "matrix_file", "matrix_reader", "resolve", "resolve_hosts", "legality", "matrix"},
    {"matrix_docs"},
    {"requires", "wheel", "wheelrules", "elf", "cubin", "fatbin"},
    {"variant", "store", "source", "drivers", "containers", "locked"},
    {"toolchain", "inputs", "steps", "plan"},
    {"atlas"},
    {"plan_view", "gate", "sbom", "compose", "diagnosis", "maker", "build", "copies", "relock"},
    {"manylinux"},
    {"reproduce"},
    {"crash"},
    {"loops", "imports"},
    {"audit"},
    {"hosts"},
    {"gpu"},
    {"compat"},
    {"index"},
    {"session"},
    {"commands", "nox", "__main__"},
)
FORBIDDEN = {"freewheel", "torch"}


def room(path: Path) -> str:
    """The top-level module or package of wheelfab that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The dotted names that a file imports, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def graph() -> dict[str, set[str]]:
    """Which room imports which others."""
    rooms: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        own = room(path)
        if own == "__init__":
            continue
        used = {name.split(".")[1] for name in imported(path) if name.startswith("wheelfab.")}
        rooms.setdefault(own, set()).update(used - {own})
    return rooms


def test_there_is_no_cycle() -> None:
    assert list(TopologicalSorter(graph()).static_order())


def test_every_room_stands_on_a_floor_and_imports_from_its_own_or_below() -> None:
    floor_of = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    assert set(graph()) == set(floor_of)
    upward = [
        f"{own} imports {used}"
        for own, uses in graph().items()
        for used in uses
        if floor_of[used] > floor_of[own]
    ]
    assert upward == []


def test_wheelfab_imports_neither_freewheel_nor_torch() -> None:
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in ROOT.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] in FORBIDDEN
    ]
    assert found == []


def test_only_run_starts_processes() -> None:
    doors = {"subprocess", "pty", "multiprocessing"}
    allowed = {"run.py", "loops/load.py", "toolchain/device.py"}
    users = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] in doors
    }
    assert users <= allowed


def test_only_containers_speaks_to_an_engine() -> None:
    users = {
        room(path)
        for path in ROOT.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] == "docker"
    }
    assert users == {"containers"}
