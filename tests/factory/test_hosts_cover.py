"""A few wheels hold every compiled file of all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.factory.cellmaker import CELLS, cells
from tests.factory.wheelmaker import make_cell
from wheelfab.hosts.cover import compiled_files, cover
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel, read_wheel


def wheels(folder: Path, files: Mapping[str, Mapping[str, bytes]]) -> list[tuple[Cell, Wheel]]:
    """A wheel of each cell of the small matrix that is named, with its files."""
    return [
        (cell, read_wheel(make_cell(folder, cell.id, files=files[cell.id])))
        for cell in cells(tuple(files))
    ]


def elf(text: str) -> bytes:
    """Bytes that begin as an ELF file does."""
    return b"\x7fELF" + text.encode()


def test_three_variants_of_two_pins_are_covered_by_three_wheels(tmp_path: Path) -> None:
    files = {
        cell.id: {
            "demo/_C.so": elf("the same"),
            "demo/_kernels.so": elf(cell.variant.name),
            "demo/_torch.so": elf(cell.pin.name),
            "demo/__init__.py": cell.id.encode(),
        }
        for cell in cells()
    }
    made = wheels(tmp_path, files)
    few = cover(made)
    assert [cell.id for cell in few] == ["cpu-torch2.4", "cu118-torch2.10", "cu121-torch2.4"]
    held = [compiled_files(wheel) for cell, wheel in made if cell in few]
    assert frozenset().union(*held) == frozenset().union(*(compiled_files(w) for _, w in made))


def test_wheels_that_share_nothing_are_all_loaded(tmp_path: Path) -> None:
    made = wheels(tmp_path, {name: {"demo/_C.so": elf(name)} for name in CELLS})
    assert [cell.id for cell in cover(made)] == list(CELLS)


def test_wheels_without_compiled_files_are_all_loaded(tmp_path: Path) -> None:
    made = wheels(tmp_path, {name: {"demo/__init__.py": b""} for name in CELLS})
    assert [cell.id for cell in cover(made)] == list(CELLS)


def test_one_wheel_with_what_all_others_hold_is_enough(tmp_path: Path) -> None:
    files = {name: {"demo/_C.so": elf("the same")} for name in CELLS}
    files["cu118-torch2.4"]["demo/_kernels.so"] = elf("more")
    assert [cell.id for cell in cover(wheels(tmp_path, files))] == ["cu118-torch2.4"]
