"""What became of each cell: its record in ``build/<cell>/`` and its wheel in ``dist/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheelfab.build import CellState, Folders
from wheelfab.errors import FormatError, WheelError
from wheelfab.records import file_digest, read_json
from wheelfab.wheel import Wheel, read_wheel

if TYPE_CHECKING:
    from wheelfab.variant import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class CellWheel:
    """One cell after the build: its wheel when it is ``ok``, else the reason why it has none.

    ``page`` is the folder of its index, ``cu121/torch2.4``.
    """

    cell: str
    page: str
    state: CellState
    wheel: Wheel | None
    reason: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.state}" + (f" ({self.reason})" if self.reason else "")


def built_wheels(root: Path, cells: Iterable[Cell]) -> tuple[CellWheel, ...]:
    """The state of every one of ``cells``, in their order, from the project folder ``root``.

    A cell without a record is ``missing``; so is one whose wheel is not in ``dist/``. One whose
    wheel has other bytes than the build left, or cannot be read, has ``failed``.

    Raises ``FormatError`` when a record is not one.
    """
    return tuple(_built(Folders(root=root), cell) for cell in cells)


def _built(folders: Folders, cell: Cell) -> CellWheel:
    state, wheel, reason = _outcome(folders, cell)
    page = f"{cell.variant.name}/{cell.pin.name}"
    return CellWheel(cell=cell.id, page=page, state=state, wheel=wheel, reason=reason)


def _outcome(folders: Folders, cell: Cell) -> tuple[CellState, Wheel | None, str]:
    record = _record(folders.record(cell.id), cell.id)
    if record is None:
        return CellState.MISSING, None, "it was not built"
    state = CellState(record["state"])
    if state is CellState.OK:
        return _wheel(folders.wheels(cell), cell.id, record)
    return state, None, str(record.get("reason", ""))


def _wheel(
    folder: Path, cell: str, record: Mapping[str, Any]
) -> tuple[CellState, Wheel | None, str]:
    """The wheel of a record that says ``ok``, if it is still the one that the build left."""
    path = folder / str(record.get("wheel"))
    if not path.is_file():
        return CellState.MISSING, None, f"its wheel {path.name} is not in {folder.name}/"
    if file_digest(path) != record.get("sha256"):
        return CellState.FAILED, None, f"{path.name} has other bytes than the build left"
    try:
        wheel = read_wheel(path)
    except WheelError as error:
        return CellState.FAILED, None, str(error)
    said = wheel.build.get("cell") if wheel.build else None
    if said != cell:
        return CellState.FAILED, None, f"{path.name} says that it is of cell {said!r}"
    return CellState.OK, wheel, ""


def _record(path: Path, cell: str) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    where = str(path)
    try:
        record = read_json(path)
    except ValueError as error:
        raise FormatError(f"is not JSON: {error}", where=where, next_step="build again") from error
    known = isinstance(record, dict) and record.get("state") in set(CellState)
    if not known or record.get("cell") != cell:
        raise FormatError(f"is not a record of {cell}", where=where, next_step="build again")
    return dict(record)
