"""The Python sources and the metadata of a wheel or an sdist, unpacked within bounds."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from wheelfab.errors import FormatError
from wheelfab.imports.package import MODULE_LIMIT, SOURCE_LIMIT

_MEMBERS = 200_000
_TOTAL = 1 << 30  # bytes of sources
_KEPT = frozenset({"PKG-INFO", "METADATA", "top_level.txt", "pyproject.toml"})
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz")
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError)
_DEPTH = 40
Item = TypeVar("Item")


def is_archive(path: Path) -> bool:
    """Whether the name of ``path`` is that of a wheel or an sdist."""
    return path.name.endswith(_ARCHIVES)


def unpack_sources(archive: Path, folder: Path) -> int:
    """Write the sources in ``archive`` below ``folder``; gives how many files that were.

    Links, absolute names and ``..`` are refused, not followed. Raises ``FormatError`` for a broken
    archive or one over its bounds.
    """
    total = count = 0
    try:
        for name, size, content in _members(archive):
            total, count = total + size, count + 1
            if size > SOURCE_LIMIT or total > _TOTAL or count > 2 * MODULE_LIMIT:
                raise FormatError("its sources are over the bounds", where=archive.name)
            target = folder / _safe(name, archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read(SOURCE_LIMIT))
    except _BROKEN as error:
        raise FormatError(
            f"cannot be unpacked: {error}", where=archive.name, next_step="download it again"
        ) from error
    return count


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    if archive.name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(archive) as opened:
            for member in _bounded(opened.infolist(), archive):
                if _wanted(member.filename) and (member.external_attr >> 28) in (0, 8):
                    with opened.open(member) as content:
                        yield member.filename, member.file_size, content
        return
    with tarfile.open(archive, "r:gz") as tar:
        for entry in _bounded(tar, archive):
            if entry.isreg() and _wanted(entry.name):
                stream = tar.extractfile(entry)
                if stream is not None:
                    yield entry.name, entry.size, stream


def _bounded(items: Iterable[Item], archive: Path) -> Iterator[Item]:
    for number, item in enumerate(items):
        if number >= _MEMBERS:
            raise FormatError(f"more than {_MEMBERS} members", where=archive.name)
        yield item


def _wanted(name: str) -> bool:
    return name.endswith(".py") or name.rpartition("/")[2] in _KEPT


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    bad = path.is_absolute() or ".." in path.parts or "\\" in name or len(path.parts) > _DEPTH
    if bad or not path.parts or any(ord(letter) < 32 for letter in name):
        raise FormatError(f"a member leaves the folder: {name!r}", where=archive.name)
    return path
