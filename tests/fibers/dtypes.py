"""The three dtypes as numpy stores them, and the conversions that numpy lacks."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Stored = NDArray[np.generic]  # float32, float16, or uint16 for bfloat16
Float64 = NDArray[np.float64]


class DType(IntEnum):
    """FwDtype of ops.h."""

    F32 = 0
    F16 = 1
    BF16 = 2

    @property
    def suffix(self) -> str:
        """As kernel names end."""
        return self.name.lower()

    @property
    def storage(self) -> np.dtype[np.generic]:
        """What numpy keeps it in."""
        return np.dtype((np.float32, np.float16, np.uint16)[self])

    @property
    def mantissa(self) -> int:
        """Bits after the leading one."""
        return (23, 10, 7)[self]

    @property
    def smallest_exponent(self) -> int:
        """Of the normal numbers."""
        return (-126, -14, -126)[self]


def encode(values: Float64 | NDArray[np.float32], dtype: DType) -> Stored:
    """Rounded to nearest, ties to even, from float32."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    if dtype is not DType.BF16:
        return single.astype(dtype.storage)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FFF), rounded)


def decode(stored: Stored, dtype: DType) -> Float64:
    """Exactly."""
    if dtype is DType.BF16:
        single = (stored.astype(np.uint32) << 16).view(np.float32)
        return single.astype(np.float64)
    return stored.astype(np.float64)


def ulp(values: Float64, dtype: DType) -> Float64:
    """The distance to the next number of ``dtype``, at each value."""
    _, exponents = np.frexp(np.abs(values))
    exponents = np.maximum(exponents - 1, dtype.smallest_exponent)
    return np.asarray(np.ldexp(1.0, exponents - dtype.mantissa), np.float64)
