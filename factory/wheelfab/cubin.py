"""What a cubin says of its kernels: registers, stack, shared, local and constant memory.

A cubin's format is NVIDIA's and undocumented. ``.nv.info`` is a row of attributes: a byte for the
format, one for the code, then two bytes that are the value, or in format 4 the length of what
follows. ``sh_info`` of ``.text.NAME`` has the number of the symbol in its low 24 bits; a symbol
with bit 0x10 of ``st_other`` is a kernel, one without is a function that kernels call. Agrees with
``ptxas -v`` of CUDA 13.0 and ``cuobjdump -res-usage`` of 12.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wheelfab.elf import Data, Elf, Section, parse_elf
from wheelfab.errors import FormatError

MACHINE = 190  # e_machine of a cubin

_SYMBOL = struct.Struct("<IBBHQQ")
_PAIR = struct.Struct("<II")
_SIZED = 4
_REGISTERS, _FRAME, _LEAST_STACK = 0x2F, 0x11, 0x12  # of .nv.info: symbol number and value
_PARAMETER_BYTES = 0x19  # of .nv.info.NAME
_ENTRY = 0x10  # in st_other
_RESERVED_SHARED = 1024  # bytes of a block's shared memory that sm_90 keeps for itself
_FIRST_TO_RESERVE = 90
_ABI_WITH_SHORT_ARCH = 7  # CUDA 12 and older; from ABI 8 the arch is the second byte of e_flags
_TEXT = ".text."


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """Of one kernel in one cubin; all but the registers in bytes.

    ``shared`` is what it always takes: a launch may ask for more. ``constant`` is the bank of its
    parameters. ``registers`` is 0 where the cubin does not say.
    """

    registers: int
    stack: int
    shared: int
    local: int
    constant: int
    parameters: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cubin:
    """A cubin: the number of its architecture (90, 120) and its kernels by name."""

    arch: int
    kernels: Mapping[str, KernelFacts]


def read_cubin(cubin: Data, where: str) -> Cubin:
    """The facts of a cubin's bytes. Raises ``FormatError`` when it is none or is malformed."""
    elf = parse_elf(cubin, where=where, symbols=False)
    if elf.machine != MACHINE:
        raise FormatError(f"an ELF file for machine {elf.machine}, not a cubin", where=where)
    try:
        return Cubin(arch=_arch(elf), kernels=_kernels(cubin, elf))
    except struct.error as error:
        raise FormatError(f"a cubin cut short ({error})", where=where) from error


def _arch(elf: Elf) -> int:
    shift = 0 if elf.abi_version <= _ABI_WITH_SHORT_ARCH else 8
    return elf.flags >> shift & 0xFF


def _kernels(cubin: Data, elf: Elf) -> dict[str, KernelFacts]:
    by_name = {section.name: section for section in elf.sections}
    values: dict[tuple[int, int], int] = {}
    for code, payload in _attributes(_content(cubin, by_name.get(".nv.info"))):
        if code in (_REGISTERS, _FRAME, _LEAST_STACK):
            symbol, value = _PAIR.unpack(payload[: _PAIR.size])
            values[code, symbol] = value
    others = _others(cubin, by_name.get(".symtab"))
    reserved = _RESERVED_SHARED if _arch(elf) >= _FIRST_TO_RESERVE else 0
    facts = {}
    for section in elf.sections:
        if not section.name.startswith(_TEXT):
            continue
        name, symbol = section.name.removeprefix(_TEXT), section.info & 0xFFFFFF
        if symbol < len(others) and not others[symbol] & _ENTRY:
            continue  # a function
        own = dict(_attributes(_content(cubin, by_name.get(f".nv.info.{name}"))))
        facts[name] = KernelFacts(
            registers=values.get((_REGISTERS, symbol), 0),
            stack=max(values.get((code, symbol), 0) for code in (_FRAME, _LEAST_STACK)),
            shared=max(0, _size(by_name.get(f".nv.shared.{name}")) - reserved),
            local=_size(by_name.get(f".nv.local.{name}")),
            constant=_size(by_name.get(f".nv.constant0.{name}")),
            parameters=int.from_bytes(own.get(_PARAMETER_BYTES, b""), "little"),
        )
    return facts


def _size(section: Section | None) -> int:
    return section.size if section is not None else 0


def _content(cubin: Data, section: Section | None) -> bytes:
    """The bytes of a section; what lies outside the file is not there."""
    return cubin[section.offset : section.offset + section.size] if section is not None else b""


def _others(cubin: Data, section: Section | None) -> list[int]:
    """``st_other`` of each symbol."""
    data = _content(cubin, section)
    usable = len(data) // _SYMBOL.size * _SYMBOL.size
    return [other for _, _, other, _, _, _ in _SYMBOL.iter_unpack(data[:usable])]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        kind, code = data[at], data[at + 1]
        value, at = data[at + 2 : at + 4], at + 4
        if kind == _SIZED:
            length = int.from_bytes(value, "little")
            value, at = data[at : at + length], at + length
        yield code, value
