"""Arrays larger than memory, of which only the pages that are touched exist."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

_NORESERVE = 0x4000  # MAP_NORESERVE on Linux; mmap names it from Python 3.13 on


def huge_zeros(count: int, storage: np.dtype[np.generic]) -> NDArray[np.generic]:
    """``count`` zeros, page-aligned."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    return np.frombuffer(mmap.mmap(-1, count * storage.itemsize, flags=flags), storage)
