"""Where the functions of a library lie, where its loader begins, and what it writes into the data.

The functions are those of ``.eh_frame`` (Linux Standard Base 5.0, core, 10.6), which stripping
leaves in place: unwinding needs it. The code between them is one function each.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from wheelfab.elf import Data, Elf, Section
from wheelfab.errors import FormatError

EXECUTABLE = 4  # of a section's flags
_ALLOCATED = 2
_RELA, _DYNSYM, _RELR = 4, 11, 19
_STARTERS = (14, 15, 16)  # sections of functions that run as the file is loaded and unloaded
_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_ABSOLUTE, _GOT, _PLT, _RELATIVE, _CHOSEN = 1, 6, 7, 8, 37  # types of relocations
_CODE, _CHOSEN_CODE, _NO_TYPE = 2, 10, 0  # types of symbols
_FORMATS = {0: "<Q", 2: "<H", 3: "<I", 4: "<Q", 10: "<h", 11: "<i", 12: "<q"}  # DW_EH_PE_*
_AT_ITSELF = 0x10  # DW_EH_PE_pcrel
_MOST = 8_000_000  # entries of any of the tables


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Addresses in a loaded library.

    ``functions``: start and end of each, in order, and where its bytes begin in the file.
    ``slots``: place in the data and what the loader writes there, in order. ``roots``: what may be
    called or read from outside. ``variables``: start and end of what is not constant.
    """

    functions: tuple[tuple[int, int, int], ...]
    slots: tuple[tuple[int, int], ...]
    roots: frozenset[int]
    variables: tuple[tuple[int, int], ...]


def read_layout(data: Data, elf: Elf) -> Layout:
    """The layout of an ELF file for x86-64; raises ``FormatError`` when it is malformed."""
    try:
        return _Reader(data, elf).read()
    except (struct.error, IndexError, OverflowError) as error:
        raise FormatError(f"its code cannot be laid out ({error})") from error


class _Reader:
    def __init__(self, data: Data, elf: Elf) -> None:
        self.data = data
        self.sections = [one for one in elf.sections if one.flags & _ALLOCATED]
        self.stored = sorted(
            (one for one in self.sections if one.stored), key=lambda one: one.address
        )
        self.symbols = [item for one in self._of(_DYNSYM) for item in self._table(one, _SYMBOL)]

    def read(self) -> Layout:
        code = [one for one in self.stored if one.flags & EXECUTABLE and ".plt" not in one.name]
        framed = sorted(set(self._framed()))
        functions = sorted(item for one in code for item in _filled(one, framed))
        slots = sorted(self._slots())
        bare = {start for start, _, _ in functions} - {start for start, _ in framed}
        variables = {one.name: one for one in self.sections if one.name in (".data", ".bss")}
        return Layout(
            functions=tuple(functions),
            slots=tuple(slots),
            roots=frozenset(bare.union(self._called(), self._read(slots))),
            variables=tuple((one.address, one.address + one.size) for one in variables.values()),
        )

    def _called(self) -> Iterator[int]:
        """Where it may be entered: its start, what it exports, what chooses a function."""
        yield from struct.unpack_from("<Q", self.data, 24)  # where a program begins
        yield from (value for _, _, _, section, value, _ in self.symbols if section)
        yield from (addend for _, kind, _, addend in self._relocations() if kind == _CHOSEN)

    def _read(self, slots: list[tuple[int, int]]) -> Iterator[int]:
        """What stands in the data that it exports, and in the lists of what runs at its load."""
        spans = [
            (value, value + size)
            for _, info, _, section, value, size in self.symbols
            if section and info & 15 not in (_CODE, _CHOSEN_CODE, _NO_TYPE)
        ]
        spans += [
            (one.address, one.address + one.size) for one in self.sections if one.type in _STARTERS
        ]
        done = 0  # no slot is looked at twice, however the spans overlap
        for start, end in sorted(spans):
            first = bisect.bisect_left(slots, (max(start, done), 0))
            last = bisect.bisect_left(slots, (end, 0))
            yield from (target for _, target in slots[first:last])
            done = max(done, end)

    def _slots(self) -> Iterator[tuple[int, int]]:
        for place, kind, symbol, addend in self._relocations():
            if kind in (_RELATIVE, _CHOSEN):
                yield place, addend
            elif kind in (_ABSOLUTE, _GOT, _PLT):
                section, value = self.symbols[symbol][3:5]
                if section:
                    yield place, value + (addend if kind == _ABSOLUTE else 0)
        for one in self._of(_RELR):
            yield from ((place, self._word(place)) for place in self._packed(one))

    def _relocations(self) -> Iterator[tuple[int, int, int, int]]:
        for one in self._of(_RELA):
            for place, info, addend in self._table(one, _RELOCATION):
                yield place, info & 0xFFFFFFFF, info >> 32, addend

    def _packed(self, section: Section) -> Iterator[int]:
        """The places of a table that holds an address, then bits for the 63 words after it."""
        at = count = 0
        for (word,) in self._table(section, struct.Struct("<Q")):
            count += word.bit_count()
            if count > _MOST:
                raise OverflowError(f"over {_MOST} places in {section.name}")
            if word & 1 == 0:
                yield word
                at = word + 8
                continue
            yield from (at + 8 * bit for bit in range(63) if word >> (bit + 1) & 1)
            at += 8 * 63

    def _framed(self) -> Iterator[tuple[int, int]]:
        for section in self.stored:
            if section.name == ".eh_frame":
                content = self.data[section.offset : section.offset + section.size]
                yield from _frames(content, section.address)

    def _of(self, kind: int) -> list[Section]:
        return [one for one in self.stored if one.type == kind]

    def _table(self, section: Section, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
        count = section.size // entry.size
        if count > _MOST:
            raise OverflowError(f"{count} entries in {section.name}")
        content = self.data[section.offset : section.offset + count * entry.size]
        return entry.iter_unpack(content)

    def _word(self, address: int) -> int:
        number = bisect.bisect_right(self.stored, address, key=lambda one: one.address) - 1
        one = self.stored[max(0, number)]
        if not one.address <= address <= one.address + one.size - 8:
            raise IndexError(f"address {address:#x} is in no section")
        at = one.offset + address - one.address
        return int.from_bytes(self.data[at : at + 8], "little")


def _filled(section: Section, framed: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """The functions of a section, and what lies between them; where two overlap, the first."""
    at, last = section.address, section.address + section.size
    back = section.offset - section.address
    for number in range(bisect.bisect_left(framed, (at, 0)), len(framed)):
        start, end = framed[number]
        if start >= last:
            break
        if start < at or end > last:
            continue
        if start > at:
            yield at, start, at + back
        yield start, end, start + back
        at = end
    if at < last:
        yield at, last, at + back


def _frames(content: bytes, address: int) -> Iterator[tuple[int, int]]:
    """Start and end of each function that ``.eh_frame`` describes."""
    encodings: dict[int, int | None] = {}
    at = 0
    while at + 8 <= len(content):
        length, back = struct.unpack_from("<II", content, at)
        if length == 0:  # an end; a linker may have joined several tables
            at += 4
            continue
        body = at + 8
        if back == 0:
            encodings[at] = _encoding(content, body)
        else:
            encoding = encodings.get(at + 4 - back)
            found = _range(content, body, address, encoding) if encoding is not None else None
            if found is not None:
                yield found
        at += 4 + length


def _range(content: bytes, at: int, address: int, encoding: int) -> tuple[int, int] | None:
    form = _FORMATS.get(encoding & 15)
    if form is None or encoding & 0x70 not in (0, _AT_ITSELF):
        return None
    (start,) = struct.unpack_from(form, content, at)
    (size,) = struct.unpack_from(form, content, at + struct.calcsize(form))
    start += address + at if encoding & 0x70 else 0
    return (start, start + size) if size > 0 else None


def _encoding(content: bytes, at: int) -> int | None:
    """How the entries that share this description write an address; ``None``: not known."""
    version = content[at]
    end = content.index(0, at + 1) if 0 in content[at + 1 : at + 9] else at
    augmentation, at = content[at + 1 : end], end + 1
    if not augmentation:
        return 0
    if not augmentation.startswith(b"z"):
        return None
    for _ in range(2):
        at = _after_number(content, at)
    at = at + 1 if version == 1 else _after_number(content, at)
    at = _after_number(content, at)
    for letter in augmentation[1:]:
        if letter == ord("R"):
            return content[at]
        if letter == ord("P"):
            form = _FORMATS.get(content[at] & 15)
            if form is None:
                return None
            at += 1 + struct.calcsize(form)
        elif letter == ord("L"):
            at += 1
        elif letter not in b"SB":
            return None
    return 0


def _after_number(content: bytes, at: int) -> int:
    """Behind a number of seven bits a byte."""
    while content[at] & 0x80:
        at += 1
    return at + 1
