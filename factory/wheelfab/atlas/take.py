"""One release read out of its wheel, member by member: facts, and the symbols of each library."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from wheelfab.atlas.dispatch import read_dispatch_keys
from wheelfab.atlas.index import IndexedWheel
from wheelfab.atlas.members import Part
from wheelfab.atlas.names import is_torch
from wheelfab.atlas.release import Checked, Library, Release
from wheelfab.atlas.windows import HEAD, TAIL, keep_ends, read_ends
from wheelfab.elf import Elf
from wheelfab.errors import FactoryError, FormatError
from wheelfab.manifest import parse_manifest
from wheelfab.toolchain.torch import cxx11_abi_of, parse_version

_VERSION, _KEYS = "torch/version.py", "torch/include/c10/core/DispatchKey.h"
_RECORD = re.compile(r"torch-[^/]+\.dist-info/RECORD")
_OURS = re.compile(r"torch/lib/(lib(?:torch|c10|caffe2|shm)\w*\.so)")
_LIBRARY = re.compile(r"torch/lib/([^/]+\.so[^/]*)")
_TEXT = 16 << 20
_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A release and, by library, the symbols of torch's that it exports."""

    release: Release
    symbols: Mapping[str, frozenset[str]]


@dataclass(slots=True)
class _Found:
    texts: dict[str, str] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)
    elves: dict[str, Elf] = field(default_factory=dict)
    archs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def is_wanted(name: str) -> bool:
    """Whether a member of a torch wheel is read for the atlas."""
    return name in (_VERSION, _KEYS) or bool(_RECORD.fullmatch(name) or _OURS.fullmatch(name))


def take(
    wheel: IndexedWheel, parts: Iterable[Part], *, pythons: Iterable[str], head: int = HEAD
) -> Taken:
    """The release in ``wheel``, from the wanted members of it; what cannot be read is noted.

    Raises ``FormatError`` when the archive breaks off or has no version.
    """
    found = _Found()
    with tempfile.TemporaryDirectory(prefix="wheelfab-atlas-") as folder:
        for part in parts:
            _read_part(part, found, Path(folder) / "ends", head)
    if _VERSION not in found.texts:
        raise FormatError(f"no {_VERSION}", where=wheel.name)
    build, cuda = parse_version(found.texts[_VERSION], where=_VERSION)
    if Version(build).public != wheel.version.public:
        raise FormatError(f"is torch {build}", where=wheel.name)
    symbols = {
        name: frozenset(symbol.name for symbol in elf.defined if is_torch(symbol.name))
        for name, elf in sorted(found.elves.items())
    }
    listed, recorded = _record(found)
    absent = sorted(name for name in listed if _OURS.fullmatch(name) and _base(name) not in symbols)
    notes = [*found.notes, *(f"{_base(name)} was not read" for name in absent)]
    keys = _keys(found, notes)
    release = Release(
        version=Version(wheel.version.public),
        build=build,
        cuda=cuda,
        cxx11_abi=_abi(found, notes),
        glibc=_glibc(found.elves.values()),
        pythons=in_order(pythons),
        python=",".join(sorted(wheel.pythons)),
        archs=_archs(found, notes),
        dispatch=keys,
        libraries=tuple(_libraries(found.elves, symbols, listed)),
        source=wheel.name,
        sha256=wheel.sha256,
        size=wheel.size or 0,
        checked=recorded,
        complete=bool(symbols) and bool(keys) and not absent and not found.notes,
        notes=tuple(notes),
    )
    return Taken(release=release, symbols=symbols)


def in_order(tags: Iterable[str]) -> tuple[str, ...]:
    """Python tags, ``cp39`` before ``cp310``."""
    return tuple(sorted(tags, key=lambda tag: (len(tag.rstrip("t")), tag)))


def _read_part(part: Part, found: _Found, path: Path, head: int) -> None:
    """Read one member. One that is malformed is noted; a broken transfer raises."""
    library = _OURS.fullmatch(part.name)
    if library is None:
        data = bytearray()
        for piece in part.pieces:
            data += piece
            if len(data) > _TEXT:
                raise FormatError(f"over {_TEXT} bytes", where=part.name)
        found.texts[part.name] = data.decode("utf-8", "replace")
        return
    ends = keep_ends(part.pieces, path, head=head, tail=TAIL)
    found.digests[part.name] = ends.sha256
    try:
        found.elves[library.group(1)] = read_ends(path, ends, where=part.name)
        found.archs[library.group(1)] = ends.archs
    except FormatError as error:
        found.notes.append(f"{library.group(1)}: {error.what}")
    path.unlink()


def _record(found: _Found) -> tuple[frozenset[str], Checked]:
    """The members that RECORD lists, and whether what was read is what it says."""
    name = next((name for name in found.texts if _RECORD.fullmatch(name)), None)
    if name is None:
        found.notes.append("no RECORD: nothing says whether all libraries were read")
        return frozenset(), Checked.NOTHING
    entries, flaws = parse_manifest(found.texts[name].encode(), where=name)
    if flaws:
        found.notes.append(f"RECORD: {flaws[0]}")
    hashes = {entry.path: entry.hash for entry in entries}
    checked = Checked.MEMBERS
    for path, sha256 in found.digests.items():
        wanted = "sha256=" + base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()
        if not hashes.get(path):
            checked = Checked.NOTHING
        elif hashes[path] != wanted:
            found.notes.append(f"{_base(path)} is not what RECORD says")
    return frozenset(hashes), checked


def _keys(found: _Found, notes: list[str]) -> tuple[str, ...]:
    try:
        return read_dispatch_keys(found.texts[_KEYS])
    except KeyError:
        notes.append("no DispatchKey.h: the numbers of its dispatch keys are not known")
    except FormatError as error:
        notes.append(f"DispatchKey.h: {error.what}")
    return ()


def _abi(found: _Found, notes: list[str]) -> bool | None:
    core = found.elves.get("libc10.so")
    try:
        return cxx11_abi_of(core, where="libc10.so") if core else None
    except FactoryError as error:
        notes.append(f"C++11 ABI: {error.what}")
        return None


def _glibc(elves: Iterable[Elf]) -> str | None:
    versions = [
        match.group(1)
        for elf in elves
        for names in elf.version_needs.values()
        for name in names
        if (match := _GLIBC.fullmatch(name))
    ]
    return max(versions, key=Version, default=None)


def _archs(found: _Found, notes: list[str]) -> tuple[str, ...]:
    """What torch says that it was compiled for; the list lies in ``libtorch_python.so``."""
    archs = found.archs.get("libtorch_python.so", ())
    if not archs and "libtorch_cuda.so" in found.elves:
        notes.append("no list of archs in libtorch_python.so")
    return tuple(sorted(archs, key=lambda arch: (arch.partition("_")[0], len(arch), arch)))


def _libraries(
    elves: Mapping[str, Elf], symbols: Mapping[str, frozenset[str]], listed: Iterable[str]
) -> Iterator[Library]:
    """Those that were read, and the names of others that lie beside them."""
    for name, elf in sorted(elves.items()):
        yield Library(name=name, needed=elf.needed, symbols=len(symbols[name]))
    for path in sorted(listed):
        other = _LIBRARY.fullmatch(path)
        if other and other.group(1) not in elves:
            yield Library(name=other.group(1), needed=(), symbols=0)


def _base(path: str) -> str:
    return path.rpartition("/")[2]
