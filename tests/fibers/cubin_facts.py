"""What compiled images say beside what ``wheelfab.cubin`` reads: their compiler, wide loads."""

from __future__ import annotations

import re

_WIDE_LOAD = re.compile(r"\bld\.global(?:\.nc)?\.(?:v4\.[busf]32|v2\.[busf]64)\b")
_ENTRY = re.compile(r"^(?:\.visible )?\.entry (\w+)\(", re.MULTILINE)


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
