"""The matrix: ``matrix.toml`` read, its defaults filled in, refused with every error at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wheelfab.errors import FactoryError, MatrixError, one_of_many
from wheelfab.facts import AbiKind, RowKind
from wheelfab.legality import check
from wheelfab.legality.draft import Flaw
from wheelfab.matrix_reader import read_tables, read_toml
from wheelfab.model import (
    CudaApi,
    Device,
    Exclusion,
    LoadStage,
    Matrix,
    Part,
    PartScope,
    Pin,
    Project,
    Session,
    Toolchain,
    Variant,
)
from wheelfab.resolve import resolve, resolve_sessions
from wheelfab.resolve_hosts import resolve_hosts

__all__ = [
    "AbiKind",
    "CudaApi",
    "Device",
    "Exclusion",
    "LoadStage",
    "Matrix",
    "Part",
    "PartScope",
    "Pin",
    "Project",
    "RowKind",
    "Session",
    "Toolchain",
    "Variant",
    "load_matrix",
    "make_matrix",
]


def load_matrix(path: Path) -> Matrix:
    """Read the matrix from the file ``path``.

    Raises ``MatrixError`` that lists every error, a line each: where, what, the nearest legal
    choice and, for a rule of legality, its source.
    """
    return make_matrix(read_toml(path), name=path.name, root=path.resolve().parent)


def make_matrix(raw: dict[str, Any], *, name: str, root: Path) -> Matrix:
    """The matrix that a TOML document stands for; ``name`` is the file's, ``root`` its folder.

    Raises ``MatrixError`` as ``load_matrix`` does.
    """
    reading = read_tables(raw, name)
    errors: list[FactoryError] = list(reading.errors)
    if reading.file is None:
        raise one_of_many(errors)
    draft, flaws = resolve(reading, reading.file)
    sessions, session_flaws = resolve_sessions(reading.file, draft)
    hosts, host_flaws = resolve_hosts(reading.file)
    found = dict.fromkeys((*flaws, *check(draft), *session_flaws, *host_flaws))
    errors += [_worded(reading.name, flaw) for flaw in found]
    if errors:
        raise one_of_many(errors)
    return Matrix(
        root=root,
        project=draft.project,
        pins={key: pin.pin for key, pin in draft.pins.items()},
        variants=tuple(row.variant for row in draft.rows),
        exclude=tuple(exclusion for _, exclusion in draft.exclude),
        sessions=sessions,
        hosts=hosts,
    )


def _worded(name: str, flaw: Flaw) -> MatrixError:
    next_step = " ".join(
        part for part in (flaw.next_step, flaw.source and f"[{flaw.source}]") if part
    )
    return MatrixError(flaw.what, where=f"{name}: {flaw.where}", next_step=next_step)
