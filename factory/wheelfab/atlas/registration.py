"""The dispatch keys that a library registers kernels under, read from its x86-64 machine code.

``TORCH_LIBRARY_IMPL(name, CPU, m)`` makes a static object whose constructor gets an optional key:
two bytes of number and a byte that says that there is one, in a register or on the stack. The
compiler writes both as one constant of four bytes, ``0x00010031``, shortly before the call. Such a
constant counts when the call that follows it goes to that constructor. Nothing is executed.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from wheelfab.elf import Data, Elf, Section

_CONSTRUCTOR = re.compile(
    r"_ZN5torch(?:7Library|6detail16TorchLibraryInit)C[12]E\w*11DispatchKey\w*"
)
_OLD_OPTIONAL = "3c108optionalI"  # c10's own, until 2.2: the flag comes first
_X86_64 = 62
_SHF_EXECINSTR, _NOBITS = 4, 8
_RELA = struct.Struct("<QQq")
_SYMBOL_SIZE = 24
_SLOT_KINDS = (6, 7)  # R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
# mov $imm, %reg; movl $imm, place on the stack; push $imm
_BEFORE = (
    rb"[\xb8-\xbf]",
    rb"\xc7\x04\x24",
    rb"\xc7\x44\x24.",
    rb"\xc7\x45.",
    rb"\xc7\x84\x24....",
    rb"\xc7\x85....",
    rb"\x68",
)


def _constant(value: bytes, bare: bytes) -> re.Pattern[bytes]:
    """``value`` in one of these instructions; ``bare`` is what re searches for fast: its bytes."""
    seen = b"|".join(rb"(?<=" + before + value + rb")" for before in _BEFORE)
    return re.compile(bare + rb"(?:" + seen + rb")", re.DOTALL)


_NEW = _constant(rb"(.)\x00\x01\x00", rb"\x00\x01\x00")
_OLD = _constant(rb"\x01\x00(.)\x00", rb"\x01\x00.\x00")
# Older compilers, and all of them without optimisation, write the flag apart or leave it to
# std::make_optional: movw $imm, place on the stack; mov $imm, %eax; mov %ax, place
_APART = re.compile(
    rb"\x66\xc7(?:\x04\x24|\x44\x24.|\x45.|\x84\x24....|\x85....)(.)\x00"
    rb"|[\xb8-\xbf](.)\x00\x00\x00(?=.{0,32}?\x66\x44?\x89)",
    re.DOTALL,
)
_IMPL = re.compile(rb"\xbe\x01\x00\x00\x00")  # mov $1, %esi: torch::Library::IMPL
_CALL = re.compile(rb"\xe8....|\xff\x15....", re.DOTALL)
_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(....)", re.DOTALL)
_REACH = 512  # bytes from a constant to its call, and in which a constructor calls the next
_MOST_SITES = 200_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The numbers of the dispatch keys that a classic library registers kernels under.

    ``read`` is false where it registers kernels and some number could not be made out.
    """

    numbers: frozenset[int] = frozenset()
    read: bool = True


NO_KEYS = Keys()
UNREAD = Keys(read=False)


def read_keys(data: Data, elf: Elf) -> Keys:
    """The keys in the bytes of the library whose facts are ``elf``; none where none registers."""
    wanted = [symbol.name for symbol in elf.undefined if _CONSTRUCTOR.fullmatch(symbol.name)]
    if not wanted:
        return NO_KEYS
    if elf.machine != _X86_64:
        return UNREAD
    try:
        return _Code(data, elf).keys(old=any(_OLD_OPTIONAL in name for name in wanted))
    except (struct.error, IndexError):
        return UNREAD


class _Code:
    def __init__(self, data: Data, elf: Elf) -> None:
        self.data = data
        self.parts = sorted(
            (part for part in elf.sections if part.flags & _SHF_EXECINSTR and part.type != _NOBITS),
            key=lambda part: part.address,
        )
        self.starts = [part.address for part in self.parts]
        self.slots = _slots(data, elf)
        self._known: dict[int, bool] = {}

    def keys(self, *, old: bool) -> Keys:
        """The constants that reach a constructor, and whether each kernel's has been seen."""
        if not self.slots:
            return UNREAD
        found = dict(self._reaching(_OLD if old else _NEW))
        kernels = {call for call, _ in self._reaching(_IMPL, at_once=True)}
        if not kernels <= found.keys():
            found |= {k: n for k, n in self._reaching(_APART) if k in kernels - found.keys()}
        numbers = frozenset(number for number in found.values() if number is not None)
        return Keys(numbers=numbers, read=bool(numbers or not kernels) and kernels <= found.keys())

    def _reaching(
        self, pattern: re.Pattern[bytes], *, at_once: bool = False
    ) -> Iterator[tuple[int, int | None]]:
        """Where ``pattern`` is followed by a call to a constructor: that call, and the number.

        A constant may wait on the stack while a string is made; with ``at_once``, what is in a
        register is for the first call that follows.
        """
        sites = 0
        for part in self.parts:
            end = min(part.offset + part.size, len(self.data))
            for match in pattern.finditer(self.data, part.offset, end):
                sites += 1
                if sites > _MOST_SITES:
                    raise IndexError
                for call in _CALL.finditer(self.data, match.end(), min(end, match.end() + _REACH)):
                    if self._constructs(call, part):
                        yield call.start(), match[match.lastindex][0] if match.lastindex else None
                        break
                    if at_once and self._is_call(call, part):
                        break

    def _constructs(self, call: re.Match[bytes], part: Section) -> bool:
        after = part.address + call.end() - part.offset
        return self._leads(call.group(), after, follow=True)

    def _is_call(self, call: re.Match[bytes], part: Section) -> bool:
        """Whether these bytes are likely a call: its target is code."""
        if call.group()[0] == 0xFF:
            return True
        after = part.address + call.end() - part.offset
        return self._place(after + int(struct.unpack("<i", call.group()[1:])[0])) is not None

    def _leads(self, call: bytes, after: int, *, follow: bool) -> bool:
        """Whether a call goes to a constructor: by its slot, a stub, or one of our own."""
        target = after + int(struct.unpack("<i", call[-4:])[0])
        if call[0] == 0xFF:
            return target in self.slots
        if not follow:
            return self._is_stub(target)
        if target not in self._known:
            self._known[target] = self._is_stub(target) or self._is_ours(target)
        return self._known[target]

    def _place(self, address: int) -> tuple[Section, int] | None:
        number = bisect_left(self.starts, address + 1) - 1
        if number < 0 or address >= self.parts[number].address + self.parts[number].size:
            return None
        part = self.parts[number]
        return part, part.offset + address - part.address

    def _is_stub(self, address: int) -> bool:
        place = self._place(address)
        if place is None:
            return False
        match = _STUB.match(self.data, place[1], min(place[1] + 16, len(self.data)))
        if match is None:
            return False
        (distance,) = struct.unpack("<i", match.group(1))
        return address + match.end() - place[1] + distance in self.slots

    def _is_ours(self, address: int) -> bool:
        """Whether the function there calls a constructor of torch's: TorchLibraryInit, hidden."""
        place = self._place(address)
        if place is None:
            return False
        part, begin = place
        end = min(begin + _REACH, part.offset + part.size, len(self.data))
        return any(
            self._leads(call.group(), part.address + call.end() - part.offset, follow=False)
            for call in _CALL.finditer(self.data, begin, end)
        )


def _slots(data: Data, elf: Elf) -> frozenset[int]:
    """The addresses of the pointers that the loader sets to one of the constructors."""
    table = elf.section(".dynsym")
    if table is None or table.link >= len(elf.sections):
        return frozenset()
    strings = elf.sections[table.link]
    found = set()
    for name in (".rela.plt", ".rela.dyn"):
        part = elf.section(name)
        content = b"" if part is None else data[part.offset : part.offset + part.size]
        content = content[: len(content) // _RELA.size * _RELA.size]
        for place, info, _ in _RELA.iter_unpack(content):
            if info & 0xFFFFFFFF in _SLOT_KINDS:
                at = table.offset + (info >> 32) * _SYMBOL_SIZE
                (offset,) = struct.unpack_from("<I", data, at)
                begin = strings.offset + offset
                text = data[begin : begin + 512].partition(b"\0")[0].decode("utf-8", "replace")
                if _CONSTRUCTOR.fullmatch(text):
                    found.add(place)
    return frozenset(found)
