"""reshape_and_cache: what is written where, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from . import operations
from .accuracy import normal, random_for
from .dtypes import DType, Stored
from .emulation import Emulation
from .huge import huge_zeros
from .records import records

_POISON = {DType.F32: 0xFFFFFFFF, DType.F16: 0xFFFF, DType.BF16: 0xFFFF}


def _bits(array: Stored) -> NDArray[np.unsignedinteger]:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _check(cache: Stored, rows: Stored, slots: NDArray[np.int64], dtype: DType) -> None:
    """Each valid slot holds its row, every other one is as poisoned as before."""
    expected = np.full(cache.shape, _POISON[dtype], f"u{cache.itemsize}")
    flat = expected.reshape(-1, *cache.shape[2:])
    for row, slot in zip(_bits(rows), slots, strict=True):
        if 0 <= slot < len(flat):
            flat[slot] = row
    np.testing.assert_array_equal(_bits(cache), expected)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("head_size", [1, 64, 80, 100, 256])
@pytest.mark.parametrize("dtype", DType)
def test_rows_go_to_their_slots(
    emulation: Emulation, dtype: DType, head_size: int, block_size: int
) -> None:
    rng = random_for(f"cache {head_size}")
    key, value = normal(rng, (9, 3, head_size), dtype), normal(rng, (9, 3, head_size), dtype)
    slots = rng.permutation(3 * block_size)[:9]
    shape = (3, block_size, 3, head_size)
    caches = operations.reshape_and_cache(emulation, dtype, key, value, shape, slots)
    for cache, rows in zip(caches, (key, value), strict=True):
        _check(cache, rows, slots, dtype)


@pytest.mark.parametrize("slot", [-1, -17, 48, 1 << 40, -(1 << 63)])
def test_a_slot_outside_writes_nothing(emulation: Emulation, slot: int) -> None:
    key = normal(random_for("slots"), (3, 2, 64), DType.F16)
    slots = np.array([5, slot, 47])
    caches = operations.reshape_and_cache(emulation, DType.F16, key, key, (3, 16, 2, 64), slots)
    for cache in caches:
        _check(cache, key, slots, DType.F16)


def test_keys_and_values_out_of_one_tensor(emulation: Emulation) -> None:
    """As a fused projection gives them, one part unaligned."""
    rows = operations.placed(normal(random_for("fused"), (4, 261), DType.F16))
    key = rows[:, :128].reshape(4, 2, 64)
    value = rows[:, 131:259].reshape(4, 2, 64)
    assert np.shares_memory(key, rows)
    assert np.shares_memory(value, rows)
    slots = np.array([0, 9, 2, 31])
    caches = operations.reshape_and_cache(emulation, DType.F16, key, value, (2, 16, 2, 64), slots)
    _check(caches[0], key, slots, DType.F16)
    _check(caches[1], value, slots, DType.F16)


@pytest.mark.parametrize("gap", [3, 8])
def test_heads_apart(emulation: Emulation, gap: int) -> None:
    key = normal(random_for("apart"), (4, 2, 64 + gap), DType.BF16)[..., :64]
    slots = np.array([0, 9, 2, 31])
    caches = operations.reshape_and_cache(emulation, DType.BF16, key, key, (2, 16, 2, 64), slots)
    for cache in caches:
        _check(cache, key, slots, DType.BF16)


def test_empty_input(emulation: Emulation) -> None:
    empty, slots = np.zeros((0, 2, 64), np.float32), np.zeros(0, np.int64)
    caches = operations.reshape_and_cache(emulation, DType.F32, empty, empty, (2, 16, 2, 64), slots)
    for cache in caches:
        _check(cache, empty, slots, DType.F32)


def test_a_slot_beyond_32_bit_offsets(emulation: Emulation) -> None:
    blocks, row = 150_000, 8 * 64
    memory = huge_zeros(blocks * 32 * row, np.dtype(np.float16))
    key, slots = np.ones((1, 8, 64), np.float16), np.array([blocks * 32 - 1])
    args = records()["FwReshapeAndCacheArgs"](
        key=key.ctypes.data,
        value=key.ctypes.data,
        key_cache=memory.ctypes.data,
        value_cache=memory.ctypes.data,
        slot_mapping=slots.ctypes.data,
        tokens=1,
        kv_heads=8,
        head_size=64,
        blocks=blocks,
        key_stride=row,
        value_stride=row,
        key_head_stride=64,
        value_head_stride=64,
        block_size_log2=5,
        dtype=DType.F16,
    )
    emulation.run("reshape_and_cache", args)
    assert (memory[-row:] == 1.0).all()
    assert not memory[-2 * row : -row].any()
