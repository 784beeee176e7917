"""The two ends of a stream in a sparse file: what a reader of symbols wants of a large library.

A library of torch has gigabytes between its first pages and its last ones; a linker puts names and
symbols at the front, patchelf moves them to the end. What lies between is never stored.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wheelfab.elf import Elf, mapped, parse_elf, symbol_places
from wheelfab.errors import FormatError

HEAD = 64 << 20
TAIL = 128 << 20
_LONGEST = 4096
# torch's own list of what it was compiled for: "sm_50 sm_60 … compute_90"
_ARCHS = re.compile(rb"(?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?)+(?=\0)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """A stream that has passed: its size and digest, and the hole between what was kept."""

    size: int
    sha256: bytes
    hole: tuple[int, int]
    archs: tuple[str, ...]


def keep_ends(chunks: Iterable[bytes], path: Path, *, head: int = HEAD, tail: int = TAIL) -> Ends:
    """Write the first ``head`` and the last ``tail`` bytes of a stream to the sparse file ``path``.

    At most ``head`` bytes are on the disk and ``tail`` in memory before the stream ends.
    """
    sha, size, kept, archs = hashlib.sha256(), 0, 0, frozenset[str]()
    ring, before = deque[bytes](), b""
    with path.open("wb") as file:
        for chunk in chunks:
            sha.update(chunk)
            archs |= _archs(before + chunk)
            before = chunk[-_LONGEST:]
            room = max(0, head - size)
            size += len(chunk)
            file.write(chunk[:room])
            ring.append(chunk[room:])
            kept += len(ring[-1])
            while kept - len(ring[0]) >= tail:
                kept -= len(ring.popleft())
        file.seek(size - kept)
        file.writelines(ring)
        file.truncate(size)
    hole = (min(head, size), size - kept)
    return Ends(size=size, sha256=sha.digest(), hole=hole, archs=tuple(sorted(archs)))


def read_ends(path: Path, ends: Ends, *, where: str) -> Elf:
    """The facts of the library whose ends are in ``path``.

    Raises ``FormatError`` when it is malformed, or when something wanted lies in the hole.
    """
    begin, end = ends.hole
    with mapped(path) as data:
        for place, size in symbol_places(data, where=where):
            if size and place < end and place + size > begin:
                what = f"{size} bytes at {place:#x} of {ends.size} lie between the ends kept"
                raise FormatError(what, where=where)
        return parse_elf(data, where=where)


def _archs(data: bytes) -> frozenset[str]:
    if b" sm_" not in data:
        return frozenset()
    found = (match.group().decode() for match in _ARCHS.finditer(data))
    return frozenset(arch for text in found for arch in text.split())
