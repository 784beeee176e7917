"""The fewest wheels that hold every compiled file of all: composed wheels share most of theirs."""

from __future__ import annotations

from collections.abc import Sequence

from wheelfab.archive import digest_member, open_archive
from wheelfab.elf import MAGIC
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel


def cover(wheels: Sequence[tuple[Cell, Wheel]]) -> tuple[Cell, ...]:
    """The cells of a few ``wheels`` in which each ELF file of all of them is, in their order.

    Wheels without any are all taken.

    Each choice is the wheel with the most files that no chosen one has, the first of equals; of M
    variants and N torch pins whose files depend on one of the two, these are max(M, N) wheels.
    """
    files = {cell.id: compiled_files(wheel) or {cell.id} for cell, wheel in wheels}
    missing = frozenset[bytes | str]().union(*files.values())
    chosen: set[str] = set()
    while missing:
        best = max(files, key=lambda cell: len(files[cell] & missing))
        chosen.add(best)
        missing -= files[best]
    return tuple(cell for cell, _ in wheels if cell.id in chosen)


def compiled_files(wheel: Wheel) -> frozenset[bytes]:
    """The SHA-256 of each ELF file in a wheel."""
    with open_archive(wheel.path) as archive:
        found = []
        for member in archive.infolist():
            with archive.open(member) as file:
                compiled = file.read(len(MAGIC)) == MAGIC
            if compiled:
                found.append(digest_member(archive, member))
    return frozenset(found)
