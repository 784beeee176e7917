"""The instructions of a library against the levels of x86-64 (v1 to v4), read by capstone.

A linear sweep over each function sees every instruction. Which functions run only where the
processor was asked is told by ``dispatch``, from what each function refers to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wheelfab.audit.dispatch import Function, open_functions
from wheelfab.audit.layout import EXECUTABLE, read_layout
from wheelfab.elf import Data, Elf, mapped
from wheelfab.errors import FormatError

_X86_64 = 62
_ET_DYN = 3  # a file that is loaded anywhere: a library, or a program such as compilers make now
_MOST = 32 << 20  # bytes of code that are read
_SECOND = re.compile(
    r"popcnt|crc32|pshufb|palignr|pabs[bwd]|phadd\w+|phsub\w+|pmaddubsw|pmulhrsw|psign[bwd]|lddqu"
    r"|movddup|movs[hl]dup|h(?:add|sub)p[sd]|addsubp[sd]|fisttp|p?blend\w+|dpp[sd]|extractps|insertps"
    r"|mpsadbw|packusdw|pcmp(?:eqq|gtq)|pcmp[ei]str[im]|pextr[bdq]|pinsr[bdq]|pm(?:ax|in)(?:s[bd]|u[wd])"
    r"|pmov[sz]x\w+|pmuldq|pmulld|ptest|round[ps][sd]|movntdqa|phminposuw"
)
# not tzcnt: an older processor takes it for the bsf that gcc means by it
_THIRD = re.compile(
    r"v\w+|andn|bextr|bls(?:i|r|msk)|bzhi|lzcnt|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe"
)
_FOURTH = re.compile(r"zmm\d|\{k[1-7]\}|[xy]mm(?:1[6-9]|2\d|3[01])|\bk[0-7]\b")
_ASKS = ("__cpu_indicator_init", "__cpu_model", "getauxval", "__get_cpuid")
_NEAR = re.compile(r"\[rip ([+-]) (0x[0-9a-f]+|\d+)\]")
_PURE = ("cmp", "test", "call", "jmp", "push", "bt")  # read an operand that stands first


@dataclass(frozen=True, kw_only=True, slots=True)
class Newest:
    """The highest level of some code, how many instructions are of it, and the first of those."""

    level: int = 1
    count: int = 0
    example: str = ""


_NOTHING = Newest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructions:
    """What a library's code needs. ``problem``: why it was not read.

    ``open``: of the functions that are reached by a way on which nothing asks what the processor
    is. ``asks``: something in the file asks.
    """

    newest: Newest = _NOTHING
    open: Newest = _NOTHING
    asks: bool = False
    problem: str = ""


def read_instructions(path: Path, elf: Elf) -> Instructions:
    """The instructions of the ELF file ``path``; never raises for what is in it."""
    if elf.machine != _X86_64:
        return Instructions(problem="levels are known of x86-64 alone")
    parts = [one for one in elf.sections if one.flags & EXECUTABLE and one.stored]
    if sum(one.size for one in parts) > _MOST:
        return Instructions(problem=f"over {_MOST >> 20} MiB of code")
    try:
        with mapped(path) as data:
            layout = read_layout(data, elf)
            functions = [_sweep(data, *one) for one in layout.functions]
    except FormatError as error:
        return Instructions(problem=error.what)
    # elsewhere code and data hold addresses that no relocation tells of
    free = open_functions(functions, layout) if elf.type == _ET_DYN else functions
    names = (symbol.name for symbol in (*elf.undefined, *elf.defined))
    return Instructions(
        newest=_newest(functions),
        open=_newest(free),
        asks=any(one.asks for one in functions) or any(name.startswith(_ASKS) for name in names),
    )


def _newest(functions: Iterable[Function]) -> Newest:
    best = _NOTHING
    for one in functions:
        level = max(one.counts, default=1)
        if level > best.level:
            best = Newest(level=level, count=one.counts[level], example=one.examples[level])
        elif level == best.level > 1:
            count = best.count + one.counts[level]
            best = Newest(level=level, count=count, example=best.example)
    return best


def _sweep(data: Data, start: int, end: int, offset: int) -> Function:
    """The function at these addresses: its instructions by level, and what it refers to."""
    import capstone  # slow to import, and for --deep alone

    reader = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    reader.skipdata = True
    found = Function(start=start, end=end)
    code = data[offset : offset + end - start]
    for at, size, name, operands in reader.disasm_lite(code, start):
        level = _level(name)
        if level == 3 and _FOURTH.search(operands):
            level = 4
        if level > 1:
            found.counts[level] = found.counts.get(level, 0) + 1
            found.examples.setdefault(level, f"{at:#x}: {name} {operands}".strip())
        elif name in ("cpuid", "xgetbv"):
            found.asks = True
        elif operands.startswith("0x") and name.rpartition(" ")[2].startswith(("j", "call")):
            found.refers.add(int(operands, 16))
        if "rip" in operands and (near := _NEAR.search(operands)):
            place = at + size + int(near[1] + near[2], 0)
            found.refers.add(place)
            first = operands.partition(",")[0]
            if "rip" in first and not name.startswith(_PURE):
                found.writes.add(place)
    return found


@cache
def _level(name: str) -> int:
    if _THIRD.fullmatch(name) and name not in ("verr", "verw", "vmcall"):
        return 3
    return 4 if re.fullmatch(r"k\w+", name) else 2 if _SECOND.fullmatch(name) else 1
