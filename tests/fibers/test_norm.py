"""rms_norm and fused_add_rms_norm beyond their standard input."""

from __future__ import annotations

import numpy as np
import pytest

from . import operations, references
from .accuracy import normal, random_for
from .dtypes import DType, Float64, Stored, decode, encode
from .emulation import Emulation
from .huge import huge_zeros

_TOLERANCE = {DType.F32: 1e-6, DType.F16: 1e-3, DType.BF16: 8e-3}
_EPS = 1e-5


def _check(got: Stored, expected: Float64, dtype: DType) -> None:
    np.testing.assert_allclose(decode(got, dtype), expected, rtol=_TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("hidden", [1, 7, 8, 31, 100, 256, 4096, 4100, 9000])
@pytest.mark.parametrize("dtype", DType)
def test_any_row_length(emulation: Emulation, dtype: DType, hidden: int) -> None:
    rng = random_for(f"norm {hidden}")
    x, weight = normal(rng, (2, hidden), dtype), normal(rng, (hidden,), dtype)
    expected = references.rms_norm(decode(x, dtype), decode(weight, dtype), _EPS)
    _check(operations.rms_norm(emulation, dtype, x, weight, _EPS), expected, dtype)


@pytest.mark.parametrize("hidden", [1, 7, 64, 4096, 4100])
@pytest.mark.parametrize("dtype", DType)
def test_any_row_length_with_a_residual(emulation: Emulation, dtype: DType, hidden: int) -> None:
    rng = random_for(f"fused norm {hidden}")
    x, residual = normal(rng, (2, hidden), dtype), normal(rng, (2, hidden), dtype)
    weight = normal(rng, (hidden,), dtype)
    got, total = operations.fused_add_rms_norm(emulation, dtype, x, residual, weight, _EPS)
    sums = encode(decode(x, dtype) + decode(residual, dtype), dtype)
    np.testing.assert_array_equal(total, sums)
    _check(got, references.rms_norm(decode(sums, dtype), decode(weight, dtype), _EPS), dtype)


@pytest.mark.parametrize("unaligned", ["out", "x", "weight", "stride", "out stride"])
def test_rows_that_128_bit_loads_cannot_read(emulation: Emulation, unaligned: str) -> None:
    rng, dtype = random_for(unaligned), DType.F16
    stored = normal(rng, (3, 65 if unaligned == "stride" else 64), dtype)
    x = operations.placed(stored, 2 if unaligned == "x" else 0)[:, :64]
    weight = operations.placed(normal(rng, (64,), dtype), 2 if unaligned == "weight" else 0)
    skew, gap = 2 if unaligned == "out" else 0, 3 if unaligned == "out stride" else 0
    got = operations.rms_norm(emulation, dtype, x, weight, _EPS, skew=skew, gap=gap)
    expected = references.rms_norm(decode(x, dtype), decode(weight, dtype), _EPS)
    _check(got, expected, dtype)


def test_rows_apart(emulation: Emulation) -> None:
    """Both tensors in wider ones, still readable by 128-bit loads."""
    rng, dtype = random_for("apart"), DType.BF16
    x, weight = normal(rng, (3, 96), dtype)[:, 8:72], normal(rng, (64,), dtype)
    got = operations.rms_norm(emulation, dtype, x, weight, _EPS, gap=8)
    _check(got, references.rms_norm(decode(x, dtype), decode(weight, dtype), _EPS), dtype)


def test_wide_and_narrow_loads_agree(emulation: Emulation) -> None:
    """They add in another order, so only nearly."""
    rng, dtype = random_for("wide"), DType.F32
    x, weight = normal(rng, (2, 512), dtype), normal(rng, (512,), dtype)
    wide = operations.rms_norm(emulation, dtype, x, weight, _EPS)
    narrow = operations.rms_norm(emulation, dtype, operations.placed(x, 4), weight, _EPS)
    np.testing.assert_allclose(decode(wide, dtype), decode(narrow, dtype), rtol=3e-7)


def test_a_row_of_zeros_is_held_up_by_eps(emulation: Emulation) -> None:
    x, weight = np.zeros((1, 64), np.float32), np.ones(64, np.float32)
    assert not operations.rms_norm(emulation, DType.F32, x, weight, _EPS).any()
    assert np.isnan(operations.rms_norm(emulation, DType.F32, x, weight, 0.0)).all()


def test_squares_beyond_half_precision_do_not_overflow(emulation: Emulation) -> None:
    x, weight = np.full((1, 64), 60000.0, np.float16), np.ones(64, np.float16)
    assert (operations.rms_norm(emulation, DType.F16, x, weight, _EPS) == 1.0).all()


def test_a_nan_stays_in_its_row(emulation: Emulation) -> None:
    x, weight = np.ones((3, 64), np.float32), np.ones(64, np.float32)
    x[1, 5] = np.nan
    got = operations.rms_norm(emulation, DType.F32, x, weight, 0.0)
    assert np.isnan(got[1]).all()
    assert (got[[0, 2]] == 1.0).all()


@pytest.mark.parametrize("shape", [(0, 64), (3, 0)])
def test_empty_input(emulation: Emulation, shape: tuple[int, int]) -> None:
    x, weight = np.zeros(shape, np.float32), np.ones(shape[1], np.float32)
    assert operations.rms_norm(emulation, DType.F32, x, weight, _EPS).size == 0
    got, total = operations.fused_add_rms_norm(emulation, DType.F32, x, x, weight, _EPS)
    assert got.size == total.size == 0


def test_rows_beyond_32_bit_offsets(emulation: Emulation) -> None:
    stride = 3 << 30
    memory = huge_zeros(stride + 64, np.dtype(np.float16))
    memory[stride:] = 2.0
    x = np.lib.stride_tricks.as_strided(memory, (2, 64), (2 * stride, 2), writeable=False)
    got = operations.rms_norm(emulation, DType.F16, x, np.ones(64, np.float16), _EPS)
    assert (got[1] == 1.0).all()
    assert not got[0].any()
