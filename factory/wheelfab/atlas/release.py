"""What is known of one torch release: a build's facts, its libraries, and what was not read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from packaging.version import Version


class Checked(StrEnum):
    """What the bytes that an entry came from were checked against."""

    WHEEL = "wheel"  # the whole file was read, and has the index's SHA-256
    MEMBERS = "members"  # each member has the CRC-32 and the SHA-256 that the wheel itself lists
    NOTHING = "nothing"  # the members have their CRC-32; the wheel lists no SHA-256 for them


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A library of torch: its file name, what it needs, how many of torch's symbols it exports."""

    name: str
    needed: tuple[str, ...]
    symbols: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One build of a torch release; every fact is that build's.

    ``version`` is the release (``2.13.0``), ``build`` its own name for itself (``2.13.0+cu130``),
    ``pythons`` the CPython tags that the index has it for, ``python`` the tag of the wheel read,
    ``glibc`` the newest version that its libraries want, ``archs`` its device code (``sm_90``),
    ``dispatch`` the names of ``c10::DispatchKey`` by number. ``source`` and ``sha256`` name the
    wheel as the index does; what of it was verified is in ``checked``. An entry is ``complete``
    when every library of torch in the wheel was read, otherwise ``notes`` says what is missing.
    """

    version: Version
    build: str
    cuda: str | None
    cxx11_abi: bool | None
    glibc: str | None
    pythons: tuple[str, ...]
    python: str
    archs: tuple[str, ...]
    dispatch: tuple[str, ...]
    libraries: tuple[Library, ...]
    source: str
    sha256: str | None
    size: int
    checked: Checked
    complete: bool
    notes: tuple[str, ...] = ()

    def library(self, name: str) -> Library | None:
        """Its library of that file name."""
        return next((item for item in self.libraries if item.name == name), None)

    def loaded_with(self, needed: frozenset[str]) -> frozenset[str]:
        """The torch libraries whose symbols a library that needs ``needed`` can bind to.

        The loader looks into what a library needs, and into what that needs: a symbol of
        ``libtorch_cuda.so`` is out of reach of one that needs ``libtorch_cpu.so`` alone.
        """
        pending, seen = list(needed), set[str]()
        while pending:
            name = pending.pop()
            library = self.library(name)
            if library is not None and name not in seen:
                seen.add(name)
                pending.extend(library.needed)
        return frozenset(seen)
