"""The instructions of a library against the levels of x86-64 (v1 to v4), read by capstone.

A linear sweep over the executable sections: it sees every instruction, and not which functions are
called only after the processor was asked. Whether it was asked at all shows in ``cpuid``, in
gcc's own table of features, or in functions that are chosen as the file is loaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from wheelfab.elf import Elf

_X86_64 = 62
_EXECUTABLE = 4  # of a section's flags
_MOST = 32 << 20  # bytes of code that are read
_SECOND = re.compile(
    r"popcnt|crc32|pshufb|palignr|pabs[bwd]|phadd\w+|phsub\w+|pmaddubsw|pmulhrsw|psign[bwd]|lddqu"
    r"|movddup|movs[hl]dup|h(?:add|sub)p[sd]|addsubp[sd]|fisttp|p?blend\w+|dpp[sd]|extractps|insertps"
    r"|mpsadbw|packusdw|pcmp(?:eqq|gtq)|pcmp[ei]str[im]|pextr[bdq]|pinsr[bdq]|pm(?:ax|in)(?:s[bd]|u[wd])"
    r"|pmov[sz]x\w+|pmuldq|pmulld|ptest|round[ps][sd]|movntdqa|phminposuw"
)
_THIRD = re.compile(
    r"v\w+|andn|bextr|bls(?:i|r|msk)|bzhi|lzcnt|tzcnt|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe"
)
_FOURTH = re.compile(r"zmm\d|\{k[1-7]\}|[xy]mm(?:1[6-9]|2\d|3[01])|\bk[0-7]\b")
_ASKS = ("__cpu_indicator_init", "__cpu_model", "getauxval", "__get_cpuid")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructions:
    """The highest level of a library's code; ``example``: the first instruction of it.

    ``asks``: something in the file asks what the processor is. ``problem``: why it was not read.
    """

    level: int = 1
    example: str = ""
    count: int = 0
    asks: bool = False
    problem: str = ""


def read_instructions(path: Path, elf: Elf) -> Instructions:
    """The instructions of the ELF file ``path``; never raises for what is in it."""
    if elf.machine != _X86_64:
        return Instructions(problem="levels are known of x86-64 alone")
    if importlib.util.find_spec("capstone") is None:
        return Instructions(problem="capstone is not installed: pip install wheelfab[deep]")
    parts = [
        one
        for one in elf.sections
        if one.flags & _EXECUTABLE and one.stored and ".plt" not in one.name
    ]
    if sum(one.size for one in parts) > _MOST:
        return Instructions(problem=f"over {_MOST >> 20} MiB of code")
    counts, examples, asks = [0] * 5, [""] * 5, _asks(elf)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for part in parts:
            code = os.pread(descriptor, part.size, part.offset)
            asks |= _sweep(code, part.address, counts, examples)
    finally:
        os.close(descriptor)
    level = max((one for one in (2, 3, 4) if counts[one]), default=1)
    return Instructions(level=level, example=examples[level], count=counts[level], asks=asks)


def _asks(elf: Elf) -> bool:
    names = (symbol.name for symbol in (*elf.undefined, *elf.defined))
    return any(name.startswith(_ASKS) for name in names)


def _sweep(code: bytes, address: int, counts: list[int], examples: list[str]) -> bool:
    """Count the instructions of each level; gives whether the processor is asked."""
    import capstone

    reader = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    reader.skipdata = True
    asks = False
    known: dict[str, int] = {}
    for at, _, name, operands in reader.disasm_lite(code, address):
        level = known.get(name)
        if level is None:
            level = known[name] = _level(name)
        if level == 1:
            asks |= name in ("cpuid", "xgetbv")
            continue
        if level == 3 and _FOURTH.search(operands):
            level = 4
        counts[level] += 1
        if not examples[level]:
            examples[level] = f"{at:#x}: {name} {operands}".strip()
    return asks


def _level(name: str) -> int:
    if _THIRD.fullmatch(name) and name not in ("verr", "verw", "vmcall"):
        return 3
    return 4 if re.fullmatch(r"k\w+", name) else 2 if _SECOND.fullmatch(name) else 1
