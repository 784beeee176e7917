"""Facts of an ELF file: needs, paths, symbols with versions, sections. 64-bit little-endian only.

Read from the bytes with every count, size and offset bounded: the files come out of other people's
wheels. pyelftools is the reference that the tests compare with; it follows a malformed file's
counts for as long as they say, and takes 20 times longer over libtorch's symbols.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType

from wheelfab.errors import FormatError

Data = bytes | mmap.mmap

MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<HHIQQQIHHHHHH")  # from offset 16
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")
_DEFINITION = struct.Struct("<HHHHIII")
_NOTE = struct.Struct("<III")
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_GNU_STACK, _PT_GNU_RELRO = 1, 2, 4, 0x6474E551, 0x6474E552
_PF_X = 1
_SHT_DYNAMIC = 6
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = (
    *(0, 1, 5, 10, 14, 15, 29),
)
_DT_TEXTREL, _DT_BIND_NOW, _DT_INIT_ARRAYSZ, _DT_FLAGS, _DT_FLAGS_1 = 22, 24, 27, 30, 0x6FFFFFFB
_DF_TEXTREL, _DF_BIND_NOW, _DF_1_NOW = 4, 8, 1
_NT_GNU_BUILD_ID = 3
_STB_WEAK = 2
_VERSION_HIDDEN = 0x8000

_MOST_SECTIONS = 200_000  # a cubin has a dozen a kernel
_MOST_SEGMENTS = 1_000
_MOST_SYMBOLS = 4_000_000
_MOST_TAGS = 20_000
_MOST_VERSIONS = 50_000
_LONGEST_NAME = 1 << 16
_MOST_NAME_BYTES = 512 << 20
_LONGEST_NOTES = 1 << 20
_LAST_OFFSET = (1 << 63) - 1  # of any file: offsets are signed


class SectionType(IntEnum):
    """The section types that this reader looks into, and those without bytes in the file."""

    NULL = 0
    NOBITS = 8
    DYNSYM = 11
    VERSION_DEFINITIONS = 0x6FFFFFFD
    VERSION_NEEDS = 0x6FFFFFFE
    VERSION_INDEX = 0x6FFFFFFF


_NOT_STORED = (SectionType.NULL, SectionType.NOBITS)


class Relro(StrEnum):
    """How much of its own tables the loader makes read-only after it relocated the file."""

    NONE = "none"
    PARTIAL = "partial"  # all but the table of functions, which is filled as they are called
    FULL = "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section's header; ``offset`` and ``size`` in bytes, ``link`` and ``info`` by its type."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def stored(self) -> bool:
        """Whether it has bytes in the file; those lie inside it."""
        return self.type not in _NOT_STORED


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A dynamic symbol; ``library`` is where an undefined one's version is wanted from."""

    name: str
    version: str | None = None
    library: str | None = None
    weak: bool = False

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Elf:
    """The facts of one file. ``executable_stack``: asked for, or no header says otherwise.

    ``initialisers``: functions that run when it is loaded. gcc's own start-up code is one of them.
    """

    machine: int
    type: int
    abi_version: int
    flags: int
    soname: str | None
    needed: tuple[str, ...]
    rpath: str | None
    runpath: str | None
    executable_stack: bool
    sections: tuple[Section, ...]
    defined: tuple[Symbol, ...]
    undefined: tuple[Symbol, ...]
    version_needs: Mapping[str, tuple[str, ...]]
    text_relocations: bool = False
    relro: Relro = Relro.NONE
    initialisers: int = 0
    build_id: str | None = None

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    @property
    def stripped(self) -> bool:
        """Whether the table of all symbols was taken out; the dynamic ones always stay."""
        return self.section(".symtab") is None

    @property
    def debug(self) -> bool:
        """Whether there is debug information."""
        return any(
            section.name in (".debug_info", ".zdebug_info") and section.type != SectionType.NOBITS
            for section in self.sections
        )


def is_elf(path: Path) -> bool:
    """Whether the file begins as an ELF file does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@contextmanager
def mapped(path: Path) -> Iterator[Data]:
    """The bytes of ``path``, mapped rather than read: libraries reach gigabytes."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def forget(data: Data) -> None:
    """Let go of the pages of a mapped file; they are read again where they are wanted again.

    The kernel maps up to megabytes around each byte that is looked at, and counts them as ours.
    """
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)


def read_elf(path: Path, *, symbols: bool = True) -> Elf:
    """The facts of the ELF file ``path``; raises ``FormatError`` when it is malformed."""
    with mapped(path) as data:
        return parse_elf(data, where=str(path), symbols=symbols)


def parse_elf(data: Data, *, where: str, symbols: bool = True) -> Elf:
    """The facts of an ELF file's bytes, without its symbols if so asked.

    Raises ``FormatError`` for anything malformed, over its bounds, 32-bit or big-endian.
    """
    try:
        return _Reader(data).read(symbols=symbols)
    except _MalformedError as error:
        raise FormatError(str(error), where=where) from error
    except struct.error as error:
        raise FormatError(f"ELF structure cut short ({error})", where=where) from error


def symbol_places(data: Data, *, where: str) -> tuple[tuple[int, int], ...]:
    """Offset and size of all that ``parse_elf`` looks into, for a file that is not all there.

    Only the header and the table of sections are read. Raises ``FormatError`` as ``parse_elf``.
    """
    try:
        return _Reader(data).places()
    except _MalformedError as error:
        raise FormatError(str(error), where=where) from error
    except struct.error as error:
        raise FormatError(f"ELF structure cut short ({error})", where=where) from error


class _MalformedError(Exception):
    pass


def _flag(numbers: Mapping[int, list[int]], tag: int, flag: int) -> bool:
    return any(value & flag for value in numbers.get(tag, ()))


def _relro(segments: list[tuple[int, ...]], numbers: Mapping[int, list[int]]) -> Relro:
    if not any(kind == _PT_GNU_RELRO for kind, *_ in segments):
        return Relro.NONE
    at_once = (
        _DT_BIND_NOW in numbers
        or _flag(numbers, _DT_FLAGS, _DF_BIND_NOW)
        or _flag(numbers, _DT_FLAGS_1, _DF_1_NOW)
    )
    return Relro.FULL if at_once else Relro.PARTIAL


@dataclass(frozen=True, slots=True)
class _Version:
    name: str
    library: str | None


class _Reader:
    """Reads one file; every offset that comes out of it passes through ``_slice``."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.size = len(data)
        self.name_bytes = 0

    def read(self, *, symbols: bool) -> Elf:
        if self.size < 64 or self.data[:4] != MAGIC:
            raise _MalformedError("not an ELF file")
        if self.data[4] != 2 or self.data[5] != 1:
            raise _MalformedError("not a 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(self.data, 16)
        self.sections = self._sections(header[5], header[10], header[11], header[12])
        segments = self._segments(header[4], header[9])
        numbers = self._dynamic(segments)
        tags = self._names(segments, numbers)
        defined, undefined, needs = self._symbols() if symbols else ((), (), {})
        stack = [flags for kind, flags, *_ in segments if kind == _PT_GNU_STACK]
        return Elf(
            machine=header[1],
            type=header[0],
            abi_version=self.data[8],
            flags=header[6],
            soname=next(iter(tags.get(_DT_SONAME, ())), None),
            needed=tuple(tags.get(_DT_NEEDED, ())),
            rpath=next(iter(tags.get(_DT_RPATH, ())), None),
            runpath=next(iter(tags.get(_DT_RUNPATH, ())), None),
            executable_stack=bool(segments) and (not stack or bool(stack[0] & _PF_X)),
            text_relocations=_DT_TEXTREL in numbers or _flag(numbers, _DT_FLAGS, _DF_TEXTREL),
            relro=_relro(segments, numbers),
            initialisers=sum(numbers.get(_DT_INIT_ARRAYSZ, ())) // 8,
            build_id=self._build_id(segments),
            sections=self.sections,
            defined=defined,
            undefined=undefined,
            version_needs=MappingProxyType(needs),
        )

    def places(self) -> tuple[tuple[int, int], ...]:
        if self.size < 64 or self.data[:4] != MAGIC:
            raise _MalformedError("not an ELF file")
        _, _, _, _, segments, table, _, _, entry, number, size, count, names = _HEADER.unpack_from(
            self.data, 16
        )
        wanted = [(0, 64), (segments, entry * number), (table, size * count)]
        # An unread table of sections is all zeros: its place, given first, tells that it is one.
        headers = list(_SECTION.iter_unpack(self._slice(table, count * _SECTION.size, "sections")))
        kinds = {kind.value for kind in SectionType if kind is not SectionType.NOBITS} | {
            _SHT_DYNAMIC
        }
        for number, header in enumerate(headers):
            if header[1] in kinds:
                wanted.append(header[4:6])
                wanted += [item[4:6] for item in headers[header[6] : header[6] + 1]]
            elif number == names:
                wanted.append(header[4:6])
        return tuple(wanted)

    def _slice(self, offset: int, size: int, what: str) -> bytes:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise _MalformedError(f"{what} lies outside the file ({offset:#x} + {size:#x})")
        return self.data[offset : offset + size]

    def _string(self, start: int, size: int, offset: int) -> str:
        """The string at ``offset`` of the string table at ``start``, which has ``size`` bytes."""
        if start < 0 or start + size > self.size or not 0 <= offset < size:
            raise _MalformedError(f"a name at {offset:#x}, outside its table of {size:#x} bytes")
        begin, limit = start + offset, min(start + size, start + offset + _LONGEST_NAME)
        end = self.data.find(b"\0", begin, limit)
        if end < 0:
            raise _MalformedError("a name without an end")
        self.name_bytes += end - begin
        if self.name_bytes > _MOST_NAME_BYTES:
            raise _MalformedError(f"names of over {_MOST_NAME_BYTES} bytes")
        return self.data[begin:end].decode("utf-8", "replace")

    def _sections(self, offset: int, entry: int, count: int, names: int) -> tuple[Section, ...]:
        if offset == 0:
            return ()
        if entry != _SECTION.size:
            raise _MalformedError(f"section headers of {entry} bytes")
        first = _SECTION.unpack(self._slice(offset, entry, "the first section header"))
        count = count or first[5]  # more than 65,279 sections: the number is in the first one
        names = first[6] if names == 0xFFFF else names
        if count > _MOST_SECTIONS:
            raise _MalformedError(f"{count} sections, over {_MOST_SECTIONS}")
        table = self._slice(offset, count * entry, "the table of sections")
        headers = list(_SECTION.iter_unpack(table))
        if names >= count:
            raise _MalformedError(f"section names in section {names} of {count}")
        for number, header in enumerate(headers):
            self._check_place(number, header)
        start, size = headers[names][4:6]
        return tuple(
            Section(
                name=self._string(start, size, header[0]) if size else "",
                type=header[1],
                flags=header[2],
                address=header[3],
                offset=header[4],
                size=header[5],
                link=header[6],
                info=header[7],
            )
            for header in headers
        )

    def _check_place(self, number: int, header: tuple[int, ...]) -> None:
        """Refuse a section outside the file; one that is not stored may be of any size."""
        kind, offset, size = header[1], header[4], header[5]
        if kind in _NOT_STORED:
            size, last = 0, _LAST_OFFSET
        else:
            last = self.size
        if offset + size > last:
            raise _MalformedError(
                f"section {number} lies outside the file ({offset:#x} + {size:#x})"
            )

    def _segments(self, offset: int, count: int) -> list[tuple[int, ...]]:
        if offset == 0 or count == 0:
            return []
        if count > _MOST_SEGMENTS:
            raise _MalformedError(f"{count} segments, over {_MOST_SEGMENTS}")
        table = self._slice(offset, count * _SEGMENT.size, "the table of segments")
        return list(_SEGMENT.iter_unpack(table))

    def _dynamic(self, segments: list[tuple[int, ...]]) -> dict[int, list[int]]:
        """The values of the dynamic tags, by tag."""
        place = next((item for item in segments if item[0] == _PT_DYNAMIC), None)
        if place is None:
            return {}
        size = min(place[5], _MOST_TAGS * _DYNAMIC.size) // _DYNAMIC.size * _DYNAMIC.size
        numbers: dict[int, list[int]] = {}
        for tag, value in _DYNAMIC.iter_unpack(self._slice(place[2], size, "the dynamic table")):
            if tag == _DT_NULL:
                break
            numbers.setdefault(tag, []).append(value)
        return numbers

    def _names(
        self, segments: list[tuple[int, ...]], numbers: dict[int, list[int]]
    ) -> dict[int, list[str]]:
        """The dynamic tags that name something, by tag."""
        if _DT_STRTAB not in numbers or _DT_STRSZ not in numbers:
            return {}
        start = self._file_offset(segments, numbers[_DT_STRTAB][0])
        length = numbers[_DT_STRSZ][0]
        return {
            tag: [self._string(start, length, value) for value in numbers[tag]]
            for tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH)
            if tag in numbers
        }

    def _build_id(self, segments: list[tuple[int, ...]]) -> str | None:
        """The linker's identifier of the file, in hexadecimal digits."""
        for kind, _, offset, _, _, size, _, _ in segments:
            if kind != _PT_NOTE or size > _LONGEST_NOTES:
                continue
            data, at = self._slice(offset, size, "a segment of notes"), 0
            while at + _NOTE.size <= len(data):
                name, length, tag = _NOTE.unpack_from(data, at)
                at += _NOTE.size
                end = at + name + -name % 4
                if tag == _NT_GNU_BUILD_ID and data[at : at + name] == b"GNU\0":
                    return data[end : end + length].hex()
                at = end + length + -length % 4
        return None

    def _file_offset(self, segments: list[tuple[int, ...]], address: int) -> int:
        for kind, _, offset, start, _, size, _, _ in segments:
            if kind == _PT_LOAD and start <= address < start + size:
                return offset + address - start
        raise _MalformedError(f"address {address:#x} is in no segment")

    def _of_type(self, kind: SectionType) -> Section | None:
        return next((section for section in self.sections if section.type == kind), None)

    def _content(self, section: Section) -> bytes:
        return self._slice(section.offset, section.size, f"section {section.name}")

    def _linked(self, section: Section) -> tuple[int, int]:
        """Offset and size of the string table that a section links to."""
        if section.link >= len(self.sections):
            raise _MalformedError(f"section {section.name} links to section {section.link}")
        strings = self.sections[section.link]
        return strings.offset, strings.size

    def _symbols(
        self,
    ) -> tuple[tuple[Symbol, ...], tuple[Symbol, ...], dict[str, tuple[str, ...]]]:
        versions, needs = self._version_needs()
        versions.update(self._version_definitions())
        table = self._of_type(SectionType.DYNSYM)
        if table is None:
            return (), (), needs
        start, size = self._linked(table)
        count = table.size // _SYMBOL.size
        if count > _MOST_SYMBOLS:
            raise _MalformedError(f"{count} symbols, over {_MOST_SYMBOLS}")
        indices = self._version_indices(count)
        defined: list[Symbol] = []
        undefined: list[Symbol] = []
        content = self._content(table)[: count * _SYMBOL.size]
        for number, (name, info, _, where, _, _) in enumerate(_SYMBOL.iter_unpack(content)):
            if name == 0:
                continue
            version = versions.get(indices[number] & ~_VERSION_HIDDEN) if indices else None
            symbol = Symbol(
                name=self._string(start, size, name),
                version=version.name if version else None,
                library=version.library if version and where == 0 else None,
                weak=info >> 4 == _STB_WEAK,
            )
            (defined if where else undefined).append(symbol)
        return tuple(defined), tuple(undefined), needs

    def _version_indices(self, count: int) -> tuple[int, ...]:
        section = self._of_type(SectionType.VERSION_INDEX)
        if section is None:
            return ()
        if section.size < 2 * count:
            raise _MalformedError(f"versions for {section.size // 2} of {count} symbols")
        return struct.unpack(f"<{count}H", self._content(section)[: 2 * count])

    def _version_needs(self) -> tuple[dict[int, _Version], dict[str, tuple[str, ...]]]:
        """The versions wanted from other libraries: by index, and by library."""
        section = self._of_type(SectionType.VERSION_NEEDS)
        versions: dict[int, _Version] = {}
        if section is None:
            return versions, {}
        needs: dict[str, list[str]] = {}
        content, strings = self._content(section), self._linked(section)
        offset = left = 0
        for _ in range(min(section.info, _MOST_VERSIONS)):
            _, count, file, aux, following = _NEED.unpack_from(content, offset)
            library, at = self._string(*strings, file), offset + aux
            found = needs.setdefault(library, [])
            for _ in range(count):
                left += 1
                if left > _MOST_VERSIONS:
                    raise _MalformedError(f"over {_MOST_VERSIONS} version needs")
                _, _, index, name, step = _NEED_VERSION.unpack_from(content, at)
                text = self._string(*strings, name)
                versions[index & ~_VERSION_HIDDEN] = _Version(text, library)
                found.append(text)
                at += step
                if step == 0:
                    break
            offset += following
            if following == 0:
                break
        return versions, {library: tuple(names) for library, names in needs.items()}

    def _version_definitions(self) -> dict[int, _Version]:
        section = self._of_type(SectionType.VERSION_DEFINITIONS)
        versions: dict[int, _Version] = {}
        if section is None:
            return versions
        content, strings = self._content(section), self._linked(section)
        offset = 0
        for _ in range(min(section.info, _MOST_VERSIONS)):
            _, flags, index, _, _, aux, following = _DEFINITION.unpack_from(content, offset)
            (name,) = struct.unpack_from("<I", content, offset + aux)
            if not flags & 1:  # the first one names the file itself
                versions[index] = _Version(self._string(*strings, name), None)
            offset += following
            if following == 0:
                break
        return versions
