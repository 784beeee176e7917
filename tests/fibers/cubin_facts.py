"""What compiled images say of their kernels: registers, stack, shared memory, wide loads.

A cubin's format is NVIDIA's and undocumented. ``.nv.info`` is a row of attributes: a byte for the
format, one for the code, then two bytes that are the value, or in format 4 the length of what
follows. ``sh_info`` of ``.text.NAME`` has the kernel's symbol number in its low 24 bits. Agrees
with ``ptxas -v`` of CUDA 13.0.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from wheelfab.elf import parse_elf

_SIZED = 4
_REGISTERS, _FRAME, _LEAST_STACK = 0x2F, 0x11, 0x12  # of .nv.info: symbol number and value
_PARAMETER_BYTES = 0x19  # of .nv.info.NAME
_RESERVED_SHARED = 1024  # bytes of a block's shared memory that sm_90 keeps for itself
_FIRST_TO_RESERVE = 90
_ABI_WITH_SHORT_ARCH = 7
_WIDE_LOAD = re.compile(r"\bld\.global(?:\.nc)?\.(?:v4\.[busf]32|v2\.[busf]64)\b")
_ENTRY = re.compile(r"^(?:\.visible )?\.entry (\w+)\(", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """Of one kernel in one cubin; all but the registers in bytes."""

    registers: int
    stack: int
    shared: int
    parameters: int


def read_cubin(cubin: bytes, where: str) -> dict[str, KernelFacts]:
    """Kernel name to facts. Raises ``FormatError`` when it is no ELF file."""
    elf = parse_elf(cubin, where=where, symbols=False)
    content = {s.name: cubin[s.offset : s.offset + s.size] for s in elf.sections}
    size = {section.name: section.size for section in elf.sections}
    values = {}
    for code, payload in _attributes(content[".nv.info"]):
        if code in {_REGISTERS, _FRAME, _LEAST_STACK}:
            symbol, value = struct.unpack("<II", payload)
            values[code, symbol] = value
    reserved = _RESERVED_SHARED if _arch(elf.flags, elf.abi_version) >= _FIRST_TO_RESERVE else 0
    facts = {}
    for section in elf.sections:
        prefix, _, name = section.name.partition(".text.")
        if prefix or not name:
            continue
        symbol = section.info & 0xFFFFFF
        info = dict(_attributes(content[f".nv.info.{name}"]))
        facts[name] = KernelFacts(
            registers=values[_REGISTERS, symbol],
            stack=max(values.get((code, symbol), 0) for code in (_FRAME, _LEAST_STACK)),
            shared=max(0, size.get(f".nv.shared.{name}", 0) - reserved),
            parameters=int.from_bytes(info[_PARAMETER_BYTES], "little"),
        )
    return facts


def toolkit(cubin: bytes) -> str:
    """The CUDA release that made a cubin, ``12.1``: its e_version, in CUDA 12 and older."""
    version = int.from_bytes(cubin[20:24], "little")
    return f"{version // 10}.{version % 10}"


def wide_loads(ptx: str) -> dict[str, int]:
    """Kernel name to the number of its 128-bit global load instructions."""
    starts = [(match[1], match.start()) for match in _ENTRY.finditer(ptx)]
    ends = [*(start for _, start in starts[1:]), len(ptx)]
    return {
        name: len(_WIDE_LOAD.findall(ptx, start, end))
        for (name, start), end in zip(starts, ends, strict=True)
    }


def _arch(flags: int, abi_version: int) -> int:
    return flags & 0xFF if abi_version <= _ABI_WITH_SHORT_ARCH else flags >> 8 & 0xFF


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        kind, code = data[at], data[at + 1]
        value, at = data[at + 2 : at + 4], at + 4
        if kind == _SIZED:
            length = int.from_bytes(value, "little")
            value, at = data[at : at + length], at + length
        yield code, value
