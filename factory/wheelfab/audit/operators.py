"""Which operators the libraries of a wheel name, read from their bytes: most are stripped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from wheelfab.archive import open_archive
from wheelfab.inflate import pieces

_OVERLAP = 4096  # no name is longer
_NAME = r"(?<!\w)%s(?:\.\w+)?\(|%s\0"  # of a schema; or alone, where a linker may share its end


def named_operators(path: Path, libraries: Iterable[str], wanted: Iterable[str]) -> frozenset[str]:
    """Those of ``wanted`` that a library of the wheel ``path`` names.

    ``wanted`` are namespaces (``freewheel``) or operators (``freewheel::rms_norm``), of which one
    library must have both parts. Raises ``FormatError`` where a library cannot be unpacked.
    """
    left = set(wanted)
    found: set[str] = set()
    with open_archive(path) as archive:
        for library in libraries:
            parts = {part for one in left for part in one.split("::")}
            here = _named(pieces(archive, archive.getinfo(library)), parts)
            found |= {one for one in left if here.issuperset(one.split("::"))}
            left -= found
    return frozenset(found)


def _named(stream: Iterable[bytes], parts: set[str]) -> set[str]:
    patterns = {part: _pattern(part) for part in parts}
    found: set[str] = set()
    before = b""
    for piece in stream:
        text = before + piece
        found |= {part for part in parts - found if patterns[part].search(text)}
        if found == parts:
            break
        before = text[-_OVERLAP:]
    return found


def _pattern(part: str) -> re.Pattern[bytes]:
    name = re.escape(part)
    return re.compile((_NAME % (name, name)).encode())
