"""A project folder as a build leaves it: cells of a small matrix, their records, their wheels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.factory.matrixmaker import MATRIX, load
from tests.factory.wheelmaker import make_cell
from wheelfab.build import Folders
from wheelfab.model import Profile
from wheelfab.records import file_digest, write_json
from wheelfab.variant import Cell, expand

CELLS = (
    "cpu-torch2.4",
    "cpu-torch2.10",
    "cu118-torch2.4",
    "cu118-torch2.10",
    "cu121-torch2.4",
    "cu121-torch2.10",
)


def cells(names: Sequence[str] = CELLS) -> tuple[Cell, ...]:
    """Cells of the small matrix, and debug twins, by their identifiers."""
    by_name = {cell.id: cell for cell in _all_cells()}
    return tuple(by_name[name] for name in names)


@lru_cache
def _all_cells() -> tuple[Cell, ...]:
    with TemporaryDirectory() as folder:
        matrix = load(Path(folder), MATRIX)
    return tuple(cell for profile in Profile for cell in expand(matrix, profile).cells)


def build_cell(root: Path, cell: str, **switches: Any) -> Path:
    """Put the wheel of ``cell`` into its place and its record into another, as a build does."""
    (known,) = cells([cell])
    wheel = make_cell(Folders(root=root).wheels(known), cell, **switches)
    record_cell(root, cell, "ok", wheel=wheel.name, sha256=file_digest(wheel))
    return wheel


def build_all(root: Path, names: Sequence[str] = CELLS, **switches: Any) -> None:
    """All of ``names``, built."""
    for name in names:
        build_cell(root, name, **switches)


def record_cell(root: Path, cell: str, state: str, **others: Any) -> None:
    """Write ``build/<cell>/build.json``."""
    record = {"cell": cell, "state": state, "wheel": None, "reason": ""} | others
    write_json(root / "build" / cell / "build.json", record)


def record_loops(
    root: Path,
    cell: str,
    wheel: Path,
    runs: Mapping[str, Mapping[str, Any]],
    skipped: Sequence[Mapping[str, str]] = (),
) -> None:
    """Write ``build/loops/<cell>.json``: for each torch release what is not as usual in its run."""
    sha256 = file_digest(wheel)
    usual = {
        "sha256": sha256,
        "python": "3.11.7",
        "libraries": "stubs",
        "passed": True,
        "text": "100 of 100 fresh, 1000 of 1000 forked",
    }
    record = {
        "schema": 1,
        "cell": cell,
        "wheel": wheel.name,
        "sha256": sha256,
        "runs": [{**usual, "torch": torch, **run} for torch, run in runs.items()],
        "skipped": list(skipped),
    }
    write_json(root / "build" / "loops" / f"{cell}.json", record)
