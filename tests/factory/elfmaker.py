"""Handmade shared libraries: just the tables that a reader of needs and symbols looks at."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_PROGBITS, _DYNSYM, _STRTAB, _DYNAMIC, _SYMTAB = 1, 11, 3, 6, 2
_VERDEF, _VERNEED, _VERSYM = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED, _STRTAB_TAG, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_GNU_STACK, _GNU_RELRO = 0x6474E551, 0x6474E552

Section = tuple[str, int, int, int, bytes]  # name, type, link, info, bytes


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
    relro: bool = False,
    tags: Sequence[tuple[int, int]] = (),
    build_id: bytes | None = None,
    sections: Sequence[str] | Mapping[str, bytes] = (),
    versions: Mapping[str, Sequence[str]] | None = None,
    versioned: Mapping[str, tuple[str, str]] | None = None,
    exports: Mapping[str, str] | None = None,
    local: Sequence[str] = (),
    machine: int = 62,
) -> bytes:
    """A shared library for ``machine``, x86-64 by default.

    ``weak`` symbols are undefined, ``stack`` is PT_GNU_STACK's flags. ``tags`` are more of the
    dynamic table, ``sections`` more sections by name, with their bytes if any. ``versions``:
    library to the versions wanted from it; ``versioned``: undefined symbols with library and
    version; ``exports``: defined symbols with version; ``local``: names in the table of all
    symbols.
    """
    strings = _Strings()
    wanted = {name: [*found] for name, found in (versions or {}).items()}
    for library, version in (versioned or {}).values():
        if version not in wanted.setdefault(library, []):
            wanted[library].append(version)
    needs, indices = _version_needs(wanted, strings)
    symbols, numbers = _symbol(0, 0, 0), [0]
    for names, info, section in ((defined, 0x12, 1), (undefined, 0x10, 0), (weak, 0x20, 0)):
        for name in names:
            symbols += _symbol(strings.add(name), info, section)
            numbers.append(1)
    for name, place in (versioned or {}).items():
        symbols += _symbol(strings.add(name), 0x10, 0)
        numbers.append(indices[place])
    definitions, own = _version_definitions([*(exports or {}).values()], len(indices) + 2, strings)
    for name, version in (exports or {}).items():
        symbols += _symbol(strings.add(name), 0x12, 1)
        numbers.append(own[version])
    pairs = [(_NEEDED, strings.add(name)) for name in needed]
    named = ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath))
    pairs += [(tag, strings.add(text)) for tag, text in named if text is not None]
    pairs += [*tags, (_STRTAB_TAG, 0x1000), (_STRSZ, len(strings.data)), (0, 0)]
    more = _version_sections(numbers, needs, len(wanted), definitions, len(own))
    extra = sections if isinstance(sections, Mapping) else dict.fromkeys(sections, b"")
    more += [(name, _PROGBITS, 0, 0, data) for name, data in extra.items()]
    if local:
        more += _all_symbols(local, 4 + len(more))
    dynamic = b"".join(struct.pack("<qQ", *pair) for pair in pairs)
    tables = [
        (".dynsym", _DYNSYM, 2, 0, symbols),
        (".dynstr", _STRTAB, 0, 0, strings.data),
        (".dynamic", _DYNAMIC, 2, 0, dynamic),
    ]
    return _assemble([*tables, *more], stack, relro, build_id, machine)


TYPE, FLAGS, OFFSET, SIZE = (
    (4, "<I"),
    (8, "<Q"),
    (24, "<Q"),
    (32, "<Q"),
)  # fields of a section's header


def with_field(elf: bytes, section: str, field: tuple[int, str], value: int) -> bytes:
    """``elf`` with one field of a section's header overwritten."""
    (at,), (count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HH", elf, 60)
    (strings,) = struct.unpack_from("<Q", elf, at + 64 * names + 24)
    data = bytearray(elf)
    for header in range(at, at + 64 * count, 64):
        start = strings + struct.unpack_from("<I", elf, header)[0]
        if elf[start : elf.index(b"\0", start)] == section.encode():
            struct.pack_into(field[1], data, header + field[0], value)
            return bytes(data)
    raise KeyError(section)


def _symbol(name: int, info: int, section: int) -> bytes:
    return struct.pack("<IBBHQQ", name, info, 0, section, 0, 0)


def _all_symbols(names: Sequence[str], first: int) -> list[Section]:
    strings = _Strings()
    table = _symbol(0, 0, 0) + b"".join(_symbol(strings.add(name), 0x02, 1) for name in names)
    return [
        (".symtab", _SYMTAB, first + 1, len(names) + 1, table),
        (".strtab", _STRTAB, 0, 0, strings.data),
    ]


def _version_needs(
    wanted: Mapping[str, Sequence[str]], strings: _Strings
) -> tuple[bytes, dict[tuple[str, str], int]]:
    """The table of version needs, and the index of each version of each library."""
    table, indices = b"", dict[tuple[str, str], int]()
    for number, (library, names) in enumerate(wanted.items(), start=1):
        following = 0 if number == len(wanted) else 16 + 16 * len(names)
        table += struct.pack("<HHIII", 1, len(names), strings.add(library), 16, following)
        for place, name in enumerate(names, start=1):
            index = len(indices) + 2
            indices[library, name] = index
            step = 0 if place == len(names) else 16
            table += struct.pack("<IHHII", 0, 0, index, strings.add(name), step)
    return table, indices


def _version_sections(
    numbers: Sequence[int], needs: bytes, wanted: int, definitions: bytes, own: int
) -> list[Section]:
    found: list[Section] = []
    if wanted or own:
        found.append((".gnu.version", _VERSYM, 1, 0, struct.pack(f"<{len(numbers)}H", *numbers)))
    if wanted:
        found.append((".gnu.version_r", _VERNEED, 2, wanted, needs))
    if own:
        found.append((".gnu.version_d", _VERDEF, 2, own, definitions))
    return found


def _version_definitions(
    versions: Sequence[str], first: int, strings: _Strings
) -> tuple[bytes, dict[str, int]]:
    """The table of version definitions, and the index of each version."""
    indices = {name: first + number for number, name in enumerate(dict.fromkeys(versions))}
    table = b""
    for name, index in indices.items():
        following = 0 if index == first + len(indices) - 1 else 28
        table += struct.pack("<HHHHIII", 1, 0, index, 1, 0, 20, following)
        table += struct.pack("<II", strings.add(name), 0)
    return table, indices


def _assemble(
    sections: Sequence[Section],
    stack: int | None,
    relro: bool,
    build_id: bytes | None,
    machine: int,
) -> bytes:
    names = _Strings()
    kinds = [(names.add(name), kind, link, info) for name, kind, link, info, _ in sections]
    kinds.append((names.add(".shstrtab"), _STRTAB, 0, 0))
    bodies = [*(section[4] for section in sections), names.data]
    segments = 2 + (stack is not None) + relro + (build_id is not None)
    at = 64 + 56 * segments
    table = struct.pack("<IIQQQQIIQQ", *(0,) * 10)
    offsets, data = [], b""
    for body, (name, kind, link, info) in zip(bodies, kinds, strict=True):
        offsets.append(at + len(data))
        place = (0, 0, offsets[-1], len(body), link, info, 8, 24)
        table += struct.pack("<IIQQQQIIQQ", name, kind, *place)
        data += body + b"\0" * (-len(body) % 8)
    head = _segment(1, 5, offsets[1], 0x1000, len(bodies[1]))
    head += _segment(2, 4, offsets[2], 0x9000, len(bodies[2]))
    if stack is not None:
        head += _segment(_GNU_STACK, stack, 0, 0, 0)
    if relro:
        head += _segment(_GNU_RELRO, 4, 0, 0, 0)
    if build_id is not None:
        note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id
        head += _segment(4, 4, at + len(data), 0xA000, len(note))
        data += note + b"\0" * (-len(note) % 8)
    ident = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    count = len(bodies) + 1
    fields = (3, machine, 1, 0, 64, at + len(data), 0, 64, 56, segments, 64, count, count - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", *fields) + head + data + table


def _segment(kind: int, flags: int, offset: int, address: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, offset, address, 0, size, size, 8)
