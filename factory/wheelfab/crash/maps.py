"""What is mapped into a process, as gdb lists it, and the versions of those libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_MAPPING = re.compile(r"\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)(.*)$")
_PERMISSIONS = re.compile(r"\s+[r-][w-][x-][ps-]\s+")
_SHARED = re.compile(r"0x[0-9a-f]+\s+0x[0-9a-f]+\s+Yes \(\*\)\s+(.+)$")
_LIBRARY = re.compile(r"\.so(?:\.\d|$)")
_NUMBERED = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
_PYTHON = re.compile(r"libpython(\d\.\d+)")
_DIST = re.compile(r"([^/]+)-([^/-]+)\.dist-info/?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapping:
    """A range of addresses; ``path`` is empty for memory that belongs to no file."""

    start: int
    end: int
    offset: int
    path: str

    @property
    def is_library(self) -> bool:
        """Whether a shared library is mapped there."""
        return _LIBRARY.search(PurePosixPath(self.path).name) is not None


def parse_mappings(lines: Iterable[str]) -> tuple[Mapping, ...]:
    """The mappings in the answer to ``info proc mappings``; releases of gdb differ in a column."""
    found = (_MAPPING.match(line) for line in lines)
    return tuple(
        Mapping(
            start=int(match[1], 16),
            end=int(match[2], 16),
            offset=int(match[3], 16),
            path=_path(match[4]),
        )
        for match in found
        if match is not None
    )


def _path(rest: str) -> str:
    text = _PERMISSIONS.sub("", rest, count=1).strip()
    return text if text.startswith("/") else ""


def libraries_without_debug(lines: Iterable[str]) -> frozenset[str]:
    """The base names that ``info sharedlibrary`` marks as without debug information."""
    found = (_SHARED.match(line) for line in lines)
    return frozenset(PurePosixPath(match[1]).name for match in found if match is not None)


def site_of(path: str) -> str | None:
    """The folder of packages that a library lies in."""
    parts = PurePosixPath(path).parts
    for number, part in enumerate(parts):
        if part in ("site-packages", "dist-packages"):
            return str(PurePosixPath(*parts[: number + 1]))
    return None


def version_of(path: str, distributions: Sequence[str], libc: str) -> str:
    """The version of a library: of its file name, of its wheel, or of the C library.

    ``distributions`` are paths of ``*.dist-info``; ``libc`` is what ``getconf`` says.
    """
    name = PurePosixPath(path).name
    if python := _PYTHON.match(name):
        return python[1]
    if numbered := _NUMBERED.search(name):
        return numbered[1]
    site = site_of(path)
    if site is not None:
        package = PurePosixPath(path).relative_to(site).parts[0].removesuffix(".libs")
        for entry in distributions:
            found = _DIST.search(entry)
            if found and entry.startswith(site) and _plain(found[1]) == _plain(package):
                return found[2]
    if re.match(r"(?:lib(?:c|m|dl|rt|pthread)|ld-linux[\w-]*)\.so\.", name):
        return libc
    return ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
