"""Handmade device images: cubins, PTX and fatbin containers that hold just what the driver reads.

The formats are those that NVRTC 11.8 and 12.1 and nvFatbin write; the code in them is no code.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_EXACT = {7: 0x800, 8: 0x8}  # the bit of suffix a in e_flags, by ABI version
_SUFFIX_FLAGS = {"": 0, "a": 0x100000, "f": 0x200000}
LZ4, ZSTD = 0x2000, 0x8000
ARCHS = ("80", "86", "89", "90", "90+PTX")  # of a freewheel variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """A kernel: the bytes of each parameter, and what a launch is checked against."""

    params: Sequence[int]
    registers: int = 32
    max_threads: int = 0  # 0: no launch bounds
    static_shared: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One image in a container; ``isa`` is PTX's own version, such as (8, 1)."""

    arch: int
    ptx: bool = False
    suffix: str = ""
    isa: tuple[int, int] = (8, 1)
    payload: bytes = b""
    flags: int = 0
    kind: int | None = None
    header: int = 64
    unpacked: int = 0  # size before compression
    extra: bytes = field(default=b"", repr=False)


def cubin(
    arch: int,
    kernels: Mapping[str, Kernel],
    *,
    suffix: str = "",
    toolkit: int = 121,
    abi: int = 7,
    more: Mapping[str, bytes] | None = None,
) -> bytes:
    """An ELF file for ``sm_<arch>`` with ``kernels``, made by CUDA ``toolkit`` (121 is 12.1).

    ``more``: further sections, by name.
    """
    sections: list[tuple[str, int, int, bytes]] = [("", 0, 0, b"")]
    registers = b""
    for symbol, (name, kernel) in enumerate(kernels.items(), start=1):
        registers += struct.pack("<BBHII", 4, 0x2F, 8, symbol, kernel.registers)
        sections.append((f".text.{name}", 1, symbol, b"\0" * 128))
        sections.append((f".nv.info.{name}", 0x70000000, 0, _attributes(kernel)))
        if kernel.static_shared:
            sections.append((f".nv.shared.{name}", 8, 0, b"\0" * kernel.static_shared))
    sections.append((".nv.info", 0x70000000, 0, registers))
    sections += [(name, 7, 0, data) for name, data in (more or {}).items()]
    names = b"\0"
    offsets = []
    for name in [*(section[0] for section in sections), ".shstrtab"]:
        offsets.append(len(names) if name else 0)
        names += name.encode() + b"\0" if name else b""
    sections.append((".shstrtab", 3, 0, names))
    flags = (arch << 8 if abi >= 8 else arch) | (_EXACT[abi] if suffix == "a" else 0)
    body = b""
    table = b""
    for (_, kind, info, data), at in zip(sections, offsets, strict=True):
        place = (64 + len(body), len(data), 0, info, 8, 0)
        table += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, *place)
        body += data + b"\0" * (-len(data) % 8)
    ident = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + b"\0" * 7
    header = (0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(sections), len(sections) - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, toolkit, *header) + body + table


def ptx(
    arch: int, kernels: Mapping[str, Kernel], *, suffix: str = "", isa: tuple[int, int]
) -> bytes:
    """PTX text for ``compute_<arch>`` with the entries of ``kernels``."""
    lines = ["", f".version {isa[0]}.{isa[1]}", f".target sm_{arch}{suffix}", ".address_size 64"]
    for name, kernel in kernels.items():
        params = [
            f"\t.param .align 8 .b8 {name}_param_{i}[{size}]"
            for i, size in enumerate(kernel.params)
        ]
        lines += [f".visible .entry {name}(", ",\n".join(params), ")", "{", "\tret;", "}"]
    return "\n".join([*lines, ""]).encode()


def lz4(data: bytes) -> bytes:
    """``data`` as one LZ4 block of literals only, which every LZ4 reader takes."""
    size = len(data)
    if size < 15:
        return bytes([size << 4]) + data
    rest = size - 15
    return bytes([0xF0]) + b"\xff" * (rest // 255) + bytes([rest % 255]) + data


def container(entries: Sequence[Entry]) -> bytes:
    """A fatbin container of ``entries``."""
    body = b"".join(_entry(entry) for entry in entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def images(
    kernels: Mapping[str, Kernel],
    archs: Sequence[str],
    *,
    isa: tuple[int, int] = (8, 1),
    toolkit: int = 121,
) -> bytes:
    """A container with an image of ``kernels`` for each of ``archs`` ("80", "90a", "90+PTX")."""
    entries = []
    for text in archs:
        name = text.removesuffix("+PTX")
        suffix = name[-1] if name[-1] in "af" else ""
        arch = int(name.removesuffix(suffix))
        if text.endswith("+PTX"):
            data = ptx(arch, kernels, suffix=suffix, isa=isa)
        else:
            data = cubin(arch, kernels, suffix=suffix, toolkit=toolkit)
        is_ptx = text.endswith("+PTX")
        entries.append(Entry(arch=arch, ptx=is_ptx, suffix=suffix, isa=isa, payload=data))
    return container(entries)


def packed(entry: Entry) -> Entry:
    """``entry`` with its payload as an LZ4 block."""
    return Entry(
        arch=entry.arch,
        ptx=entry.ptx,
        suffix=entry.suffix,
        isa=entry.isa,
        payload=lz4(entry.payload),
        flags=entry.flags | LZ4,
        header=entry.header,
        unpacked=len(entry.payload),
    )


def _attributes(kernel: Kernel) -> bytes:
    data = struct.pack("<BBHI", 4, 0x37, 4, 121)  # the toolkit, which readers skip
    if kernel.max_threads:
        data += struct.pack("<BBHIII", 4, 0x05, 12, kernel.max_threads, 1, 1)
    offset = 0
    placed = []
    for ordinal, size in enumerate(kernel.params):
        offset += -offset % 8
        word = size << 18 | 0x1F000
        placed.append(struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, offset, word))
        offset += size
    return data + struct.pack("<BBH", 3, 0x19, offset) + b"".join(reversed(placed))


def _entry(entry: Entry) -> bytes:
    kind = entry.kind if entry.kind is not None else (1 if entry.ptx else 2)
    major, minor = entry.isa if entry.ptx else (1, 7)
    size = len(entry.payload) + -len(entry.payload) % 8
    compressed = len(entry.payload) if entry.flags & (LZ4 | ZSTD) else 0
    head = struct.pack("<HHIQII", kind, 0x101, entry.header, size, compressed, 0)
    head += struct.pack("<HHIII", minor, major, entry.arch, 0, 0)
    flags = entry.flags | _SUFFIX_FLAGS[entry.suffix] | 0x11
    head += struct.pack("<QQQ", flags, 0, entry.unpacked)
    head += b"\0" * (entry.header - len(head))
    return head + entry.payload + b"\0" * (size - len(entry.payload))
