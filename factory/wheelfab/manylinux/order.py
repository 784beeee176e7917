"""What a container is to build: a cell, and the source's commit and time, told without git."""

from __future__ import annotations

from pathlib import Path

from wheelfab.locked import load_locked
from wheelfab.manylinux.config import ORDER, PROJECT, SOURCES
from wheelfab.matrix import load_matrix
from wheelfab.model import Profile
from wheelfab.plan import Plan, plan
from wheelfab.records import read_json, write_json
from wheelfab.source import Source
from wheelfab.toolchain.host import host_compiler
from wheelfab.variant import Cell, expand, select


def write_order(folder: Path, made: Plan, cell: Cell) -> None:
    """Leave in ``folder``, which the container sees, what is to be built."""
    source = made.source
    order = {
        "cell": cell.id,
        "profile": cell.profile,
        "commit": source.commit,
        "epoch": source.epoch,
    }
    write_json(folder / ORDER, order)


def read_order(folder: Path = Path(PROJECT)) -> tuple[Plan, Cell]:
    """The plan of the cell that ``folder`` orders, by the compiler that is here."""
    order = read_json(folder / ORDER)
    matrix = load_matrix(folder / SOURCES / "matrix.toml")
    (cell,) = select(expand(matrix, Profile(order["profile"])), [order["cell"]])
    source = Source(root=matrix.root, commit=order["commit"], epoch=order["epoch"])
    return plan(matrix, [cell], source, host_compiler(), load_locked(matrix.root)), cell
