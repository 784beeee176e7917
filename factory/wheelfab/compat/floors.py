"""What a wheel wants of the system: of glibc by its tag, of libstdc++ by its libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from packaging.version import Version

from wheelfab.archive import open_archive
from wheelfab.audit.manylinux import floors
from wheelfab.elf import MAGIC, Elf, read_elf
from wheelfab.inflate import pieces
from wheelfab.wheel import Wheel


def glibc_floor(wheel: Wheel) -> str | None:
    """The lowest glibc that a manylinux tag of the wheel promises to be enough."""
    levels = [
        Version(f"{parts[1]}.{parts[2]}")
        for tag in wheel.tags
        if tag.platform.startswith("manylinux_") and len(parts := tag.platform.split("_")) > 3
    ]
    return str(min(levels)) if levels else None


def glibcxx_floor(wheel: Wheel) -> str | None:
    """The newest GLIBCXX version that a library of the wheel wants; ``None`` where none wants any.

    Raises ``FormatError`` where a library cannot be read.
    """
    with open_archive(wheel.path) as archive:
        return floors(_elves(archive)).get("GLIBCXX")


def _elves(archive: ZipFile) -> Iterator[Elf]:
    with TemporaryDirectory() as folder:
        place = Path(folder) / "library"
        for member in archive.infolist():
            stream = pieces(archive, member)
            first = next(stream, b"")
            if first.startswith(MAGIC):
                with place.open("wb") as file:
                    file.writelines((first, *stream))
                yield read_elf(place)
