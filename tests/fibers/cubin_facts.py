"""What compiled images say beside what ``wheelfab.cubin`` reads: their compiler, wide accesses."""

from __future__ import annotations

import re
from typing import NamedTuple

from .cuda_binaries import functions

_LOAD = re.compile(r"\bLDG(?:\.\w+)*\.128\b")
_STORE = re.compile(r"\bSTG(?:\.\w+)*\.128\b")


class Wide(NamedTuple):
    """How many instructions of a kernel's machine code move 16 bytes of global memory at once."""

    loads: int
    stores: int


def toolkit(cubin: bytes) -> str:
    """The CUDA release that made a cubin, ``12.1``: its e_version, in CUDA 12 and older."""
    version = int.from_bytes(cubin[20:24], "little")
    return f"{version // 10}.{version % 10}"


def wide_accesses(sass: str) -> dict[str, Wide]:
    """Kernel name to its 128-bit accesses, from what ``nvdisasm`` prints of a cubin."""
    return {
        name: Wide(loads=len(_LOAD.findall(code)), stores=len(_STORE.findall(code)))
        for name, code in functions(sass).items()
    }
