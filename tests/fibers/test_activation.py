"""silu_and_mul beyond its standard input."""

from __future__ import annotations

import numpy as np
import pytest

from . import operations, references
from .accuracy import normal, random_for
from .dtypes import DType, decode
from .emulation import Emulation
from .records import records

_TOLERANCE = {DType.F32: 1e-6, DType.F16: 1e-3, DType.BF16: 8e-3}


@pytest.mark.parametrize("size", [1, 3, 8, 100, 1024, 2056, 5000])
@pytest.mark.parametrize("dtype", DType)
def test_any_row_length(emulation: Emulation, dtype: DType, size: int) -> None:
    x = normal(random_for(f"silu {size}"), (2, 2 * size), dtype)
    got = operations.silu_and_mul(emulation, dtype, x)
    expected = references.silu_and_mul(decode(x, dtype))
    np.testing.assert_allclose(decode(got, dtype), expected, rtol=_TOLERANCE[dtype], atol=1e-7)


@pytest.mark.parametrize(
    ("size", "x_skew", "skew", "gap"),
    [(64, 0, 2, 0), (64, 2, 0, 0), (64, 2, 2, 0), (64, 0, 0, 3), (60, 0, 0, 4), (64, 0, 0, 8)],
)
def test_rows_that_128_bit_loads_can_and_cannot_read(
    emulation: Emulation, size: int, x_skew: int, skew: int, gap: int
) -> None:
    stored = normal(random_for("silu"), (2, 2 * size), DType.F16)
    aligned = operations.silu_and_mul(emulation, DType.F16, stored)
    x = operations.placed(stored, x_skew)
    got = operations.silu_and_mul(emulation, DType.F16, x, skew, gap)
    np.testing.assert_array_equal(got, aligned)


def test_a_grid_with_fewer_parts_than_the_row_has(emulation: Emulation) -> None:
    """As for rows of more than 65535 parts."""
    x = normal(random_for("parts"), (2, 2 * 5000), DType.F32)
    expected = operations.silu_and_mul(emulation, DType.F32, x)
    with operations.output((2, 5000), x.dtype) as out:
        args = records()["FwSiluAndMulArgs"](
            out=out.ctypes.data,
            x=x.ctypes.data,
            tokens=2,
            size=5000,
            out_stride=5000,
            x_stride=10000,
        )
        emulation.launch("fw_silu_and_mul_f32", [2, 2, 1], [256, 1, 1], args)
    np.testing.assert_array_equal(out, expected)


def test_far_from_zero_it_is_the_identity_or_zero(emulation: Emulation) -> None:
    gates = [-1e30, -200.0, 0.0, 200.0, 1e30, np.inf]
    x = np.array([[*gates, *np.ones(len(gates))]], np.float32)
    got = operations.silu_and_mul(emulation, DType.F32, x)
    np.testing.assert_array_equal(got[0], [0, 0, 0, 200.0, np.float32(1e30), np.inf])


@pytest.mark.parametrize("shape", [(0, 64), (3, 0)])
def test_empty_input(emulation: Emulation, shape: tuple[int, int]) -> None:
    assert operations.silu_and_mul(emulation, DType.F32, np.zeros(shape, np.float32)).size == 0
