"""What a build left in a library: folders of its machine, compilers, names of operators."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wheelfab.elf import Elf, Section

_CHUNK = 4 << 20
_OVERLAP = 4096  # no path is longer
_MOST_READ = 1 << 30  # bytes of one file that are looked through
_MOST_PATHS = 200
_SHOWN = 20
_LONGEST_SYMBOLS = 256 << 20

# A source file with its folders, as an assertion names it, and folders that packages lie in.
_PATH = re.compile(
    rb"(?<![\w.$/-])/(?:[\w.+@=-]+/)+(?:"
    rb"[\w.+@=-]+\.(?:cc|cpp|cxx|c|cuh|cu|hpp|hh|h|inl|inc|ipp)(?![\w.])|(?:site|dist)-packages(?=/))"
)
_SYSTEM = re.compile(rb"/usr/(?:include|lib|lib64|share|src)/|/opt/rh/|/lib/|/proc/|/sys/")
_REGISTERED = re.compile(
    rb"_ZL(?P<length>\d{1,4})(?P<stable>STABLE_)?TORCH_LIBRARY_(?P<kind>FRAGMENT_|IMPL_)?init_"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """What a build left. ``paths`` are folders, at most 20 of the ``path_count`` that were found.

    ``compilers``: the notes that compilers leave. ``defines``: the namespaces of operators that the
    file defines, exact, from its table of all symbols; ``None`` of a stripped file, which
    does not tell.
    """

    paths: tuple[str, ...] = ()
    path_count: int = 0
    compilers: tuple[str, ...] = ()
    defines: tuple[str, ...] | None = None


def read_traces(path: Path, elf: Elf) -> Traces:
    """The traces in the ELF file ``path``, of which at most 1 GiB is looked through."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        folders = _folders(descriptor, elf)
        return Traces(
            paths=tuple(sorted(folders)[:_SHOWN]),
            path_count=len(folders),
            compilers=_compilers(descriptor, elf),
            defines=None if elf.stripped else _defined(descriptor, elf),
        )
    finally:
        os.close(descriptor)


def _folders(descriptor: int, elf: Elf) -> set[str]:
    found: set[str] = set()
    left = _MOST_READ
    for section in elf.sections:
        if not section.name.startswith((".rodata", ".debug_str", ".debug_line_str", ".data.rel")):
            continue
        if not section.stored:
            continue
        for piece in _pieces(descriptor, section, left):
            for match in _PATH.finditer(piece):
                text = match[0]
                if not _SYSTEM.match(text):
                    found.add(_top(text).decode("ascii"))
                if len(found) >= _MOST_PATHS:
                    return found
        left -= section.size
    return found


def _top(path: bytes) -> bytes:
    """The first three folders of a path: enough to know whose they are."""
    parts = path.split(b"/")[1:-1]
    return b"/" + b"/".join(parts[:3])


def _pieces(descriptor: int, section: Section, most: int) -> Iterator[bytes]:
    """A section in pieces that overlap, read by position: mapped pages would count as memory."""
    stop = section.offset + max(0, min(section.size, most))
    at = section.offset
    while at < stop:
        yield os.pread(descriptor, min(_CHUNK + _OVERLAP, stop - at), at)
        at += _CHUNK


def _compilers(descriptor: int, elf: Elf) -> tuple[str, ...]:
    section = elf.section(".comment")
    if section is None or not section.stored or section.size > _CHUNK:
        return ()
    notes = os.pread(descriptor, section.size, section.offset).split(b"\0")
    return tuple(sorted({note.decode("utf-8", "replace") for note in notes if note}))


def _defined(descriptor: int, elf: Elf) -> tuple[str, ...] | None:
    """The namespaces of ``TORCH_LIBRARY(name, m)``: each leaves a local function of that name."""
    table = elf.section(".symtab")
    if table is None or table.link >= len(elf.sections):
        return None
    strings = elf.sections[table.link]
    if not strings.stored or strings.size > _LONGEST_SYMBOLS:
        return None
    found = set()
    for piece in _pieces(descriptor, strings, strings.size):
        for match in _REGISTERED.finditer(piece):
            if match["kind"]:
                continue
            start = match.start("length") + len(match["length"])
            name = piece[match.end() : start + int(match["length"])]
            found.add(name.decode("utf-8", "replace"))
    return tuple(sorted(found))
