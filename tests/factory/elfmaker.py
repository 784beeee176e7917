"""Handmade shared libraries: just the tables that a reader of needs and symbols looks at."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_PROGBITS, _DYNSYM, _STRTAB, _DYNAMIC = 1, 11, 3, 6
_NEEDED, _STRTAB_TAG, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_GNU_STACK = 0x6474E551


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def make_library(
    *,
    defined: Sequence[str] = (),
    undefined: Sequence[str] = (),
    weak: Sequence[str] = (),
    needed: Sequence[str] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    stack: int | None = 6,
    sections: Sequence[str] = (),
) -> bytes:
    """An x86-64 shared library; ``weak`` ones are undefined, ``stack`` is PT_GNU_STACK's flags.

    ``sections`` are more of them, by name, with nothing in them.
    """
    strings = _Strings()
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for names, info, section in ((defined, 0x12, 1), (undefined, 0x10, 0), (weak, 0x20, 0)):
        for name in names:
            symbols += struct.pack("<IBBHQQ", strings.add(name), info, 0, section, 0, 0)
    tags = [(_NEEDED, strings.add(name)) for name in needed]
    named = ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath))
    tags += [(tag, strings.add(text)) for tag, text in named if text is not None]
    tags += [(_STRTAB_TAG, 0x1000), (_STRSZ, len(strings.data)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    return _assemble(symbols, strings.data, dynamic, stack, sections)


def _assemble(
    symbols: bytes, strings: bytes, dynamic: bytes, stack: int | None, more: Sequence[str]
) -> bytes:
    names = _Strings()
    kinds = [
        (names.add(".dynsym"), _DYNSYM, 2),
        (names.add(".dynstr"), _STRTAB, 0),
        (names.add(".dynamic"), _DYNAMIC, 2),
        *((names.add(name), _PROGBITS, 0) for name in more),
        (names.add(".shstrtab"), _STRTAB, 0),
    ]
    bodies = (symbols, strings, dynamic, *(b"" for _ in more), names.data)
    segments = 2 + (stack is not None)
    at = 64 + 56 * segments
    table = struct.pack("<IIQQQQIIQQ", *(0,) * 10)
    offsets, data = [], b""
    for body, (name, kind, link) in zip(bodies, kinds, strict=True):
        offsets.append(at + len(data))
        table += struct.pack(
            "<IIQQQQIIQQ", name, kind, 0, 0, offsets[-1], len(body), link, 0, 8, 24
        )
        data += body + b"\0" * (-len(body) % 8)
    load = struct.pack("<IIQQQQQQ", 1, 5, offsets[1], 0x1000, 0, len(strings), len(strings), 8)
    place = struct.pack("<IIQQQQQQ", 2, 4, offsets[2], 0x9000, 0, len(dynamic), len(dynamic), 8)
    head = load + place
    if stack is not None:
        head += struct.pack("<IIQQQQQQ", _GNU_STACK, stack, 0, 0, 0, 0, 0, 16)
    ident = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    count = len(bodies) + 1
    fields = (3, 62, 1, 0, 64, at + len(data), 0, 64, 56, segments, 64, count, count - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", *fields) + head + data + table
