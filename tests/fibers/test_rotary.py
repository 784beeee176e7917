"""rotary_embedding beyond its standard input."""

from __future__ import annotations

import numpy as np
import pytest

from . import operations, references
from .accuracy import normal, random_for, rotary_table
from .dtypes import DType, decode
from .emulation import Emulation

_TOLERANCE = {DType.F32: 1e-6, DType.F16: 2e-3, DType.BF16: 1.6e-2}


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(("head_size", "rotary_size"), [(64, 64), (80, 32), (128, 128), (6, 2)])
@pytest.mark.parametrize("dtype", DType)
def test_both_pairings(
    emulation: Emulation, dtype: DType, head_size: int, rotary_size: int, neox: bool
) -> None:
    rng = random_for(f"rotary {head_size}")
    query, key = normal(rng, (4, 11, head_size), dtype), normal(rng, (4, 2, head_size), dtype)
    table, positions = rotary_table(64, rotary_size), np.array([0, 63, 7, 7])
    got = operations.rotary_embedding(emulation, dtype, positions, query, key, table, neox=neox)
    rows = table[positions].astype(np.float64)
    for before, after in zip((query, key), got, strict=True):
        expected = references.rotate(decode(before, dtype), rows, neox)
        np.testing.assert_allclose(decode(after, dtype), expected, atol=_TOLERANCE[dtype])
        np.testing.assert_array_equal(after[..., rotary_size:], before[..., rotary_size:])


def test_heads_apart(emulation: Emulation) -> None:
    rng, table = random_for("apart"), rotary_table(16, 32)
    query, key = normal(rng, (3, 9, 64), DType.F16), normal(rng, (3, 2, 64), DType.F16)
    inputs = (emulation, DType.F16, np.array([3, 0, 15]), query, key, table)
    got = operations.rotary_embedding(*inputs, neox=True, gap=5)
    expected = operations.rotary_embedding(*inputs, neox=True)
    for rows, expected_rows in zip(got, expected, strict=True):
        np.testing.assert_array_equal(rows, expected_rows)


def test_it_is_a_rotation(emulation: Emulation) -> None:
    """Forth and, with the sines turned round, back."""
    query = normal(random_for("turn"), (3, 2, 64), DType.F32)
    table, positions = rotary_table(100, 64), np.array([1, 50, 99])
    key = np.zeros((3, 0, 64), np.float32)
    back = table * np.repeat(np.array([1, -1], np.float32), 32)
    turned, _ = operations.rotary_embedding(
        emulation, DType.F32, positions, query, key, table, neox=True
    )
    before = decode(query, DType.F32)
    assert np.abs(decode(turned, DType.F32) - before).max() > 0.1
    again, _ = operations.rotary_embedding(
        emulation, DType.F32, positions, turned, key, back.astype(np.float32), neox=True
    )
    np.testing.assert_allclose(decode(again, DType.F32), before, atol=1e-6)


@pytest.mark.parametrize("position", [-1, 16, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("dtype", DType)
def test_a_position_outside_the_table_makes_that_token_nan(
    emulation: Emulation, dtype: DType, position: int
) -> None:
    rng, table = random_for("outside"), rotary_table(16, 32)
    query, key = normal(rng, (3, 2, 64), dtype), normal(rng, (3, 1, 64), dtype)
    positions = np.array([3, position, 5])
    good = np.array([3, 0, 5])
    got = operations.rotary_embedding(emulation, dtype, positions, query, key, table, neox=True)
    expected = operations.rotary_embedding(emulation, dtype, good, query, key, table, neox=True)
    for rows, good_rows in zip(got, expected, strict=True):
        assert np.isnan(decode(rows[1, :, :32], dtype)).all()
        np.testing.assert_array_equal(rows[1, :, 32:], good_rows[1, :, 32:])
        np.testing.assert_array_equal(rows[[0, 2]], good_rows[[0, 2]])


def test_empty_input(emulation: Emulation) -> None:
    empty, table = np.zeros((0, 2, 64), np.float32), rotary_table(4, 64)
    got, _ = operations.rotary_embedding(
        emulation, DType.F32, np.zeros(0, np.int64), empty, empty, table, neox=True
    )
    assert got.size == 0
