"""Device code in a file, read without a GPU or a toolkit: entries of fatbin containers.

The format is NVIDIA's and undocumented; what is read here agrees with cuobjdump 12.4 on files of
CUDA 11.8, 12.1, 12.4 and 13.0. A container is a header of 16 bytes and entries; each entry has a
header (of 64 bytes or more: it says how many) and one image for one architecture.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import zstandard

from wheelfab.cubin import KernelFacts, read_cubin
from wheelfab.elf import MAGIC as ELF_MAGIC
from wheelfab.elf import Data, forget, mapped, parse_elf
from wheelfab.errors import FormatError
from wheelfab.lz4 import decompress_block

LOADED_SECTION = ".nv_fatbin"
RELOCATABLE_SECTION = "__nv_relfatbin"  # for nvlink; the driver never sees it

_MAGIC = 0xBA55ED50
_MAGIC_BYTES = _MAGIC.to_bytes(4, "little")
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, size of the entries
_ENTRY = struct.Struct("<HHIQI4xHHIIIQ8xQ")
_KINDS = {1: "ptx", 2: "cubin", 8: "lto"}
_LZ4, _ZSTD, _ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x2000, 0x8000, 0x100000, 0x200000
_ENTRY_POINT = re.compile(rb"\.entry\s+([A-Za-z_$%][\w$]*)")

_MOST_ENTRIES = 1_000_000
_LARGEST_HEADER = 4096
_LARGEST_IMAGE = 1 << 30


class ImageKind(StrEnum):
    """What an entry holds."""

    CUBIN = "cubin"
    PTX = "ptx"
    LTO = "lto"
    OTHER = "other"


class Compression(StrEnum):
    """How an entry's image is stored."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One image of a container. Offsets are into the file, sizes in bytes.

    ``arch``: compute capability with suffix, ``9.0a``. ``isa``: PTX ISA version of a PTX image.
    ``container``: the how-manieth of the section; one container is one ``.cu`` file. ``section`` is
    empty for a bare fatbin file.
    """

    section: str
    container: int
    kind: ImageKind
    arch: str
    isa: tuple[int, int] | None
    compression: Compression
    offset: int
    stored: int
    size: int
    name: str

    @property
    def loadable(self) -> bool:
        """Whether a driver would look at it: relocatable code and LTO IR are for the linker."""
        linkable = self.section == RELOCATABLE_SECTION or self.kind is ImageKind.LTO
        return not linkable and self.kind is not ImageKind.OTHER

    @property
    def target(self) -> str:
        """As an arch list writes it: ``8.0`` for a cubin, ``9.0+PTX`` for PTX."""
        return f"{self.arch}+PTX" if self.kind is ImageKind.PTX else self.arch


def entries_of(path: Path) -> tuple[Entry, ...]:
    """The entries of an ELF file's fatbin sections or of a bare fatbin; none is no error.

    Raises ``FormatError`` when the file or a container is malformed.
    """
    with mapped(path) as data:
        return parse_entries(data, where=str(path))


def parse_entries(data: Data, *, where: str) -> tuple[Entry, ...]:
    """As ``entries_of``, of bytes."""
    regions = [("", 0, len(data))]
    if data[:4] == ELF_MAGIC:
        elf = parse_elf(data, where=where, symbols=False)
        regions = [
            (section.name, section.offset, section.size)
            for section in elf.sections
            if section.name in (LOADED_SECTION, RELOCATABLE_SECTION)
        ]
    try:
        return tuple(entry for region in regions for entry in _region(data, *region))
    except struct.error as error:
        raise FormatError(f"fatbin cut short ({error})", where=where) from error
    except _MalformedError as error:
        raise FormatError(str(error), where=where) from error


def read_image(path: Path, entry: Entry) -> bytes:
    """The image of ``entry``, expanded. Raises ``FormatError`` for a broken image."""
    with mapped(path) as data:
        return expand(data, entry, where=str(path))


def expand(data: Data, entry: Entry, *, where: str) -> bytes:
    """The image of ``entry`` of ``data``; PTX without its padding.

    Raises ``FormatError`` for a broken image and one over its bounds.
    """
    stored = data[entry.offset : entry.offset + entry.stored]
    if entry.size > _LARGEST_IMAGE:
        raise FormatError(f"an image of {entry.size} bytes", where=where)
    match entry.compression:
        case Compression.NONE:
            image = stored
        case Compression.LZ4:
            image = decompress_block(stored, entry.size, where=where)
        case Compression.ZSTD:
            image = _zstd(stored, entry.size, where)
    return image.rstrip(b"\0") if entry.kind is ImageKind.PTX else image


def kernels(image: bytes, entry: Entry, *, where: str) -> tuple[str, ...]:
    """The names of the kernels in an expanded cubin or PTX, sorted.

    Raises ``FormatError`` when a cubin is no ELF file or is for another arch than its entry says.
    """
    if entry.kind is ImageKind.PTX:
        return tuple(sorted({name.decode() for name in _ENTRY_POINT.findall(image)}))
    return tuple(sorted(kernel_facts(image, entry, where=where)))


def kernel_facts(image: bytes, entry: Entry, *, where: str) -> Mapping[str, KernelFacts]:
    """The kernels of an expanded cubin, each with what it takes; of anything else nothing.

    Raises ``FormatError`` when it is no cubin or is for another arch than its entry says.
    """
    if entry.kind is not ImageKind.CUBIN:
        return {}
    cubin = read_cubin(image, where)
    arch = _capability(cubin.arch)
    if arch != entry.arch.rstrip("af"):
        raise FormatError(
            f"the entry says a cubin for {entry.arch}, the image is for {arch}", where=where
        )
    return cubin.kernels


def archs_of(path: Path) -> tuple[str, ...]:
    """What a driver finds in the file: ``("8.0", "9.0", "9.0+PTX")``; empty without device code."""
    return loadable_archs(entries_of(path))


def loadable_archs(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """The distinct targets of the loadable entries, by capability, a cubin before its PTX."""
    found = {entry.target for entry in entries if entry.loadable}
    return tuple(sorted(found, key=_order))


def _order(target: str) -> tuple[int, int, str, bool]:
    arch, _, ptx = target.partition("+")
    major, _, minor = arch.rstrip("af").partition(".")
    return int(major), int(minor), arch, bool(ptx)


class _MalformedError(Exception):
    pass


def _region(data: Data, section: str, start: int, size: int) -> Iterator[Entry]:
    """The entries of all containers in a section: 8-aligned, nothing but zeros between them."""
    stop = start + size
    if stop > len(data):
        raise _MalformedError(f"section {section} lies outside the file")
    at, container, count = start, 0, 0
    while (found := data.find(_MAGIC_BYTES, at, stop)) >= 0:
        _only_zeros(data, at, found)
        _, _, header, length = _CONTAINER.unpack_from(data, found)
        end = found + header + length
        if header < _CONTAINER.size or end > stop:
            raise _MalformedError(
                f"a container at {found:#x} that ends at {end:#x}, after {stop:#x}"
            )
        for entry in _entries(data, section, container, found + header, end):
            count += 1
            if count > _MOST_ENTRIES:
                raise _MalformedError(f"over {_MOST_ENTRIES} entries")
            yield entry
        at, container = end, container + 1
        forget(data)
    _only_zeros(data, at, stop)


def _only_zeros(data: Data, start: int, stop: int) -> None:
    if data[start:stop].strip(b"\0"):
        raise _MalformedError(f"bytes outside any container at {start:#x}")


def _entries(data: Data, section: str, container: int, at: int, end: int) -> Iterator[Entry]:
    while at < end:
        kind, _, header, size, packed, minor, major, arch, name, length, flags, full = (
            _ENTRY.unpack_from(data, at)
        )
        stored = packed or size
        if not _ENTRY.size <= header <= _LARGEST_HEADER or name + length > header:
            raise _MalformedError(f"an entry header of {header} bytes at {at:#x}")
        if at + header + size > end or stored > size:
            raise _MalformedError(f"an entry at {at:#x} that leaves its container")
        image = ImageKind(_KINDS.get(kind, "other"))
        yield Entry(
            section=section,
            container=container,
            kind=image,
            arch=_capability(arch) + _suffix(flags),
            isa=(major, minor) if image is ImageKind.PTX else None,
            compression=_compression(flags),
            offset=at + header,
            stored=stored,
            size=full or size,
            name=data[at + name : at + name + length].decode("utf-8", "replace"),
        )
        at += header + size


def _capability(arch: int) -> str:
    return f"{arch // 10}.{arch % 10}"


def _suffix(flags: int) -> str:
    if flags & _ARCH_SPECIFIC:
        return "a"
    return "f" if flags & _FAMILY_SPECIFIC else ""


def _compression(flags: int) -> Compression:
    if flags & _ZSTD:
        return Compression.ZSTD
    return Compression.LZ4 if flags & _LZ4 else Compression.NONE


def _zstd(stored: bytes, size: int, where: str) -> bytes:
    try:
        if zstandard.frame_content_size(stored) > size:  # it would all be allocated
            raise FormatError(f"a zstd image of over {size} bytes", where=where)
        image = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    except (zstandard.ZstdError, MemoryError) as error:
        raise FormatError(f"a broken zstd image: {error}", where=where) from error
    if len(image) != size:
        raise FormatError(f"{len(image)} bytes where {size} were due", where=where)
    return image
