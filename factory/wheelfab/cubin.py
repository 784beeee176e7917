"""What a cubin says of its kernels: registers, stack, shared, local and constant memory.

A cubin's format is NVIDIA's and undocumented. ``.nv.info`` is a row of attributes: a byte for the
format, one for the code, then two bytes that are the value, or in format 4 the length of what
follows. ``sh_info`` of ``.text.NAME`` has the number of the symbol in its low 24 bits; a symbol
with bit 0x10 of ``st_other`` is a kernel, one without is a function that kernels call. Agrees with
``ptxas -v`` of CUDA 13.0 and ``cuobjdump -res-usage`` of 12.4.

It reads the section headers by itself, as bytes: a torch release has half a million of them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wheelfab.elf import MAGIC
from wheelfab.errors import FormatError

MACHINE = 190  # e_machine of a cubin

_HEADER = struct.Struct("<HHIQQQIHHHHHH")  # from offset 16
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PAIR = struct.Struct("<BBHII")  # an attribute of format 4 with a symbol's number and a value
_SIZED = 4
_SYMBOL_SIZE, _SYMBOL_OTHER = 24, 5
_REGISTERS, _FRAME, _LEAST_STACK = 0x2F, 0x11, 0x12  # of .nv.info: symbol number and value
_PARAMETER_BYTES = 0x19  # of .nv.info.NAME
_ENTRY = 0x10  # in st_other
_RESERVED_SHARED = 1024  # bytes of a block's shared memory that sm_90 keeps for itself
_FIRST_TO_RESERVE = 90
_ABI_WITH_SHORT_ARCH = 7  # CUDA 12 and older; from ABI 8 the arch is the second byte of e_flags
_EXACT_SHORT, _EXACT = 0x800, 0x8  # bits of e_flags that some, not all, cubins for 90a have
_TARGET = re.compile(rb"-arch[ =]+(?:sm|compute)_\d+([af]?)\b")  # in the compiler's note
_MOST_SECTIONS = 200_000  # a dozen a kernel
_LONGEST_NAME = 1 << 16
_NOBITS = 8

# Offset, size, sh_info and type of a section.
_Place = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """Of one kernel in one cubin; all but the registers in bytes.

    ``shared`` is what it always takes: a launch may ask for more. ``constant`` is the bank of its
    parameters. ``registers`` is 0 where the cubin does not say, and ``parameters`` where they were
    not asked for.
    """

    registers: int
    stack: int
    shared: int
    local: int
    constant: int
    parameters: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cubin:
    """A cubin: the number of its architecture (90, 120) and its kernels by name.

    ``suffix`` is ``a`` or ``f`` where the cubin itself tells, by the compiler's note or by a flag;
    without them it may be either: in a fatbin the entry says it.
    """

    arch: int
    suffix: str
    kernels: Mapping[str, KernelFacts]


def read_cubin(cubin: bytes, where: str, *, parameters: bool = False) -> Cubin:
    """The facts of a cubin's bytes; ``parameters``: how many bytes each kernel takes, too.

    Raises ``FormatError`` when it is none or is malformed.
    """
    if cubin[:4] != MAGIC or cubin[4:6] != b"\x02\x01" or len(cubin) < 64:
        raise FormatError("not a 64-bit little-endian ELF file", where=where)
    header = _HEADER.unpack_from(cubin, 16)
    if header[1] != MACHINE:
        raise FormatError(f"an ELF file for machine {header[1]}, not a cubin", where=where)
    try:
        sections = _sections(cubin, header)
    except ValueError as error:
        raise FormatError(f"a malformed cubin: {error}", where=where) from error
    short, flags = cubin[8] <= _ABI_WITH_SHORT_ARCH, header[6]
    arch = (flags if short else flags >> 8) & 0xFF
    note = _TARGET.search(_content(cubin, sections.get(b".note.nv.tkinfo")))
    exact = flags & (_EXACT_SHORT if short else _EXACT)
    return Cubin(
        arch=arch,
        suffix=note[1].decode() if note else "a" if exact else "",
        kernels=_kernels(cubin, sections, arch, parameters=parameters),
    )


def _sections(cubin: bytes, header: tuple[int, ...]) -> dict[bytes, _Place]:
    """The sections by name; raises ``ValueError`` for what lies outside the file."""
    start, size, count, names_at = header[5], header[10], header[11], header[12]
    if start == 0:
        return {}
    if size != _SECTION.size or start + size > len(cubin):
        raise ValueError("section headers outside the file")
    count = count or _SECTION.unpack_from(cubin, start)[5]  # over 65,279: it is in the first one
    if count > _MOST_SECTIONS or start + count * size > len(cubin):
        raise ValueError(f"{count} section headers")
    headers = list(_SECTION.iter_unpack(cubin[start : start + count * size]))
    names_at = headers[0][6] if names_at == 0xFFFF else names_at
    if names_at >= count:
        raise ValueError(f"section names in section {names_at} of {count}")
    at = headers[names_at][4]
    names = cubin[at : at + headers[names_at][5]]
    found: dict[bytes, _Place] = {}
    for name_at, kind, _, _, offset, length, _, info, _, _ in headers:
        end = names.find(b"\0", name_at, name_at + _LONGEST_NAME)
        if end < 0:
            raise ValueError("a name without an end")
        found.setdefault(names[name_at:end], (offset, length, info, kind))
    return found


def _kernels(
    cubin: bytes, sections: Mapping[bytes, _Place], arch: int, *, parameters: bool
) -> dict[str, KernelFacts]:
    values = _values(_content(cubin, sections.get(b".nv.info")))
    registers, frame, least = values[_REGISTERS], values[_FRAME], values[_LEAST_STACK]
    others = _content(cubin, sections.get(b".symtab"))[_SYMBOL_OTHER::_SYMBOL_SIZE]
    reserved = _RESERVED_SHARED if arch >= _FIRST_TO_RESERVE else 0
    facts = {}
    for section, (_, _, info, _) in sections.items():
        if not section.startswith(b".text."):
            continue
        name, symbol = section[6:], info & 0xFFFFFF
        if symbol < len(others) and not others[symbol] & _ENTRY:
            continue  # a function
        facts[name.decode("utf-8", "replace")] = KernelFacts(
            registers=registers.get(symbol, 0),
            stack=max(frame.get(symbol, 0), least.get(symbol, 0)),
            shared=max(0, _size(sections.get(b".nv.shared." + name)) - reserved),
            local=_size(sections.get(b".nv.local." + name)),
            constant=_size(sections.get(b".nv.constant0." + name)),
            parameters=_parameter_bytes(_content(cubin, sections.get(b".nv.info." + name)))
            if parameters
            else 0,
        )
    return facts


def _values(data: bytes) -> dict[int, dict[int, int]]:
    """The attributes of ``.nv.info`` that give a symbol a value: by code, by symbol's number."""
    found: dict[int, dict[int, int]] = {_REGISTERS: {}, _FRAME: {}, _LEAST_STACK: {}}
    if len(data) % _PAIR.size == 0:  # nearly always a row of nothing else
        pairs = list(_PAIR.iter_unpack(data))
        if all(kind == _SIZED and length == 8 for kind, _, length, _, _ in pairs):
            for _, code, _, symbol, value in pairs:
                if code in found:
                    found[code][symbol] = value
            return found
    for code, payload in _attributes(data):
        if code in found and len(payload) == 8:
            found[code][int.from_bytes(payload[:4], "little")] = int.from_bytes(
                payload[4:], "little"
            )
    return found


def _parameter_bytes(data: bytes) -> int:
    sizes = (value for code, value in _attributes(data) if code == _PARAMETER_BYTES)
    return int.from_bytes(next(sizes, b""), "little")


def _size(place: _Place | None) -> int:
    return place[1] if place is not None else 0


def _content(cubin: bytes, place: _Place | None) -> bytes:
    """The bytes of a section; what lies outside the file is not there."""
    if place is None or place[3] == _NOBITS:
        return b""
    return cubin[place[0] : place[0] + place[1]]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        kind, code = data[at], data[at + 1]
        value, at = data[at + 2 : at + 4], at + 4
        if kind == _SIZED:
            length = int.from_bytes(value, "little")
            value, at = data[at : at + length], at + length
        yield code, value
