"""paged_attention beyond its standard input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from . import operations, references
from .accuracy import attention_result, mixed_batch, random_for
from .dtypes import DType, Float64, Stored, decode, encode
from .emulation import Emulation
from .huge import huge_zeros
from .operations import Batch

_TOLERANCE = {DType.F32: 2e-6, DType.F16: 1e-3, DType.BF16: 8e-3}


def _attend(emulation: Emulation, dtype: DType, batch: Batch, splits: int = 1) -> Float64:
    return decode(operations.paged_attention(emulation, dtype, batch, splits), dtype)


def _check(emulation: Emulation, dtype: DType, batch: Batch, splits: int = 1) -> None:
    got = _attend(emulation, dtype, batch, splits)
    expected = references.paged_attention(batch, dtype)
    np.testing.assert_allclose(got, expected, atol=_TOLERANCE[dtype])


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("head_size", [64, 80])
@pytest.mark.parametrize("dtype", DType)
def test_block_sizes(emulation: Emulation, dtype: DType, head_size: int, block_size: int) -> None:
    rng = random_for(f"blocks {block_size}")
    batch = mixed_batch(rng, dtype, head_size=head_size, block_size=block_size)
    _check(emulation, dtype, batch)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (8, 2), (6, 1), (9, 3)])
def test_query_heads_share_key_heads(emulation: Emulation, heads: int, kv_heads: int) -> None:
    rng = random_for(f"heads {heads}")
    batch = mixed_batch(rng, DType.F32, head_size=64, heads=heads, kv_heads=kv_heads)
    _check(emulation, DType.F32, batch)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("window", [1, 2, 16, 33, 149, 150, 1 << 40])
def test_windows(emulation: Emulation, window: int, splits: int) -> None:
    batch = mixed_batch(random_for("window"), DType.F32, head_size=64, window=window)
    _check(emulation, DType.F32, batch, splits)


def test_blocks_that_left_the_window_may_be_gone(emulation: Emulation) -> None:
    batch = mixed_batch(random_for("gone"), DType.F32, head_size=64, lengths=((2, 100),), window=20)
    expected = _attend(emulation, DType.F32, batch)
    batch.block_table[0, :4] = -1  # 64 positions; the first query sees 79 to 98
    np.testing.assert_array_equal(_attend(emulation, DType.F32, batch), expected)


@pytest.mark.parametrize("splits", [2, 3, 5, 31])
@pytest.mark.parametrize("dtype", DType)
def test_splits_give_the_same_result(emulation: Emulation, dtype: DType, splits: int) -> None:
    """Many splits of a short context are empty: they must weigh nothing."""
    batch = mixed_batch(random_for("splits"), dtype, head_size=80)
    whole = _attend(emulation, dtype, batch)
    got = _attend(emulation, dtype, batch, splits)
    np.testing.assert_allclose(got, whole, atol=_TOLERANCE[dtype])
    _check(emulation, dtype, batch, splits)


@pytest.mark.parametrize("splits", [1, 8])
def test_a_long_context(emulation: Emulation, splits: int) -> None:
    batch = mixed_batch(
        random_for("long"), DType.BF16, head_size=128, lengths=((1, 1500),), heads=2, kv_heads=1
    )
    result = attention_result(emulation, DType.BF16, batch, splits)
    assert np.abs(result.got - result.expected).max() < 1e-3


@pytest.mark.parametrize(
    "lengths",
    [
        ((40, 40),),
        ((1, 1),),
        ((1, 31), (1, 32), (1, 33), (1, 64), (1, 65)),
        ((0, 17), (3, 9), (0, 0), (0, 5), (2, 2)),
        ((7, 90), (1, 1), (1, 200)),
    ],
)
def test_batches(emulation: Emulation, lengths: tuple[tuple[int, int], ...]) -> None:
    batch = mixed_batch(random_for("batches"), DType.F32, head_size=64, lengths=lengths)
    _check(emulation, DType.F32, batch)


@pytest.mark.parametrize("splits", [1, 3])
def test_great_scores_do_not_overflow(emulation: Emulation, splits: int) -> None:
    batch = mixed_batch(random_for("great"), DType.F32, head_size=64)
    batch = replace(batch, scale=1000.0)
    got = _attend(emulation, DType.F32, batch, splits)
    expected = references.paged_attention(batch, DType.F32)
    np.testing.assert_allclose(got, expected, atol=2e-2)  # float32 scores of 30,000 are that coarse
    assert np.isfinite(got).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_equal_scores_give_the_mean(emulation: Emulation, sign: float) -> None:
    """Also where every score is far below zero."""
    batch = mixed_batch(random_for("mean"), DType.F32, head_size=64, lengths=((1, 70),))
    batch.query[...] = sign * 100.0
    batch.key_cache[...] = 100.0
    _check(emulation, DType.F32, batch)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("bad", [-1, 1000, 2**31 - 1, -(2**31)])
def test_a_block_number_outside_makes_only_its_rows_nan(
    emulation: Emulation, bad: int, splits: int
) -> None:
    """The sequence of 5 tokens sees its block; so do none of the other sequences."""
    batch = mixed_batch(random_for("outside"), DType.F16, head_size=64)
    good = operations.paged_attention(emulation, DType.F16, batch, splits)
    batch.block_table[1, 0] = bad
    got = operations.paged_attention(emulation, DType.F16, batch, splits)
    assert np.isnan(got[1:6]).all()
    np.testing.assert_array_equal(got[6:], good[6:])
    np.testing.assert_array_equal(got[0], good[0])


def test_the_number_after_the_last_block_is_outside(emulation: Emulation) -> None:
    """Although it could be read: the cache is part of a larger one."""
    batch = mixed_batch(random_for("after"), DType.F32, head_size=64, lengths=((1, 20),))
    larger = operations.placed(np.ones((8, *batch.key_cache.shape[1:]), np.float32))
    batch = replace(batch, key_cache=larger[:7], value_cache=larger[:7])
    batch.block_table[0] = (0, 6, -1, -1)
    np.testing.assert_allclose(_attend(emulation, DType.F32, batch), 1.0, rtol=1e-6)
    batch.block_table[0, 1] = 7
    assert np.isnan(_attend(emulation, DType.F32, batch)).all()


@pytest.mark.parametrize("splits", [1, 2])
def test_a_context_longer_than_the_table_is_nan(emulation: Emulation, splits: int) -> None:
    batch = mixed_batch(random_for("short"), DType.F32, head_size=64, lengths=((1, 33), (1, 40)))
    short = replace(batch, block_table=np.ascontiguousarray(batch.block_table[:, :2]))
    assert np.isnan(_attend(emulation, DType.F32, short, splits)).all()


def test_a_later_query_sees_the_bad_block_an_earlier_one_does_not(emulation: Emulation) -> None:
    batch = mixed_batch(random_for("later"), DType.F32, head_size=64, lengths=((20, 20),))
    batch.block_table[0, 1] = -1
    got = _attend(emulation, DType.F32, batch)
    assert not np.isnan(got[:16]).any()
    assert np.isnan(got[16:]).all()


@pytest.mark.parametrize("splits", [1, 2])
def test_tokens_of_no_sequence_get_zeros(emulation: Emulation, splits: int) -> None:
    batch = mixed_batch(random_for("padding"), DType.F32, head_size=64, lengths=((2, 9), (1, 9)))
    rows = np.full((6, 4, 64), 7.0, np.float32)
    rows[1:4] = batch.query
    padded = replace(batch, query=rows, query_start_loc=batch.query_start_loc + 1)
    got = _attend(emulation, DType.F32, padded, splits)
    np.testing.assert_array_equal(got[1:4], _attend(emulation, DType.F32, batch, splits))
    assert not got[[0, 4, 5]].any()


@pytest.mark.parametrize("splits", [1, 2])
def test_nothing_to_attend_to_gives_zeros(emulation: Emulation, splits: int) -> None:
    """More queries than the sequence is long, and no sequence at all."""
    batch = mixed_batch(random_for("nothing"), DType.F32, head_size=64, lengths=((3, 3),))
    shorter = replace(batch, seq_lens=np.array([1], np.int32))
    got = _attend(emulation, DType.F32, shorter, splits)
    assert not got[:2].any()
    assert got[2].any()
    none = replace(
        batch,
        seq_lens=np.zeros(0, np.int32),
        block_table=np.zeros((0, 1), np.int32),
        query_start_loc=np.zeros(1, np.int32),
    )
    assert not _attend(emulation, DType.F32, none, splits).any()


def test_empty_input(emulation: Emulation) -> None:
    batch = mixed_batch(random_for("empty"), DType.F32, head_size=64, lengths=((0, 5),))
    assert _attend(emulation, DType.F32, batch).size == 0


@pytest.mark.parametrize("skew", [0, 2])
def test_queries_out_of_one_tensor(emulation: Emulation, skew: int) -> None:
    """Rows of a fused projection; those off 16 bytes are read one by one."""
    batch = mixed_batch(random_for("fused"), DType.F16, head_size=64)
    rows = operations.placed(np.zeros((len(batch.query), 8 * 64), np.float16), skew)
    query = rows[:, 64 : 5 * 64].reshape(batch.query.shape)
    assert np.shares_memory(query, rows)
    query[...] = batch.query
    got = operations.paged_attention(emulation, DType.F16, replace(batch, query=query))
    expected = operations.paged_attention(emulation, DType.F16, batch)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("gap", [2, 8])
def test_query_heads_apart(emulation: Emulation, gap: int) -> None:
    batch = mixed_batch(random_for("apart"), DType.F16, head_size=64)
    rows = np.zeros((*batch.query.shape[:2], 64 + gap), np.float16)
    query = operations.placed(rows)[..., :64]
    query[...] = batch.query
    got = operations.paged_attention(emulation, DType.F16, replace(batch, query=query))
    expected = operations.paged_attention(emulation, DType.F16, batch)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("splits", [1, 2])
def test_output_rows_apart(emulation: Emulation, splits: int) -> None:
    batch = mixed_batch(random_for("apart"), DType.F16, head_size=80)
    got = operations.paged_attention(emulation, DType.F16, batch, splits, gap=5)
    expected = operations.paged_attention(emulation, DType.F16, batch, splits)
    np.testing.assert_array_equal(got, expected)


def test_a_nan_in_the_cache_reaches_only_those_who_see_it(emulation: Emulation) -> None:
    batch = mixed_batch(random_for("nan"), DType.F32, head_size=64, lengths=((2, 8), (1, 9)))
    block = batch.block_table[0, 0]
    batch.value_cache[block, 7, 0, 3] = np.nan
    got = _attend(emulation, DType.F32, batch)
    seen = np.isnan(got)
    assert seen[1, :2, 3].all()
    assert seen.sum() == 2


def test_a_cache_beyond_32_bit_offsets(emulation: Emulation) -> None:
    blocks, shape = 150_000, (32, 8, 64)
    memory = huge_zeros(blocks * int(np.prod(shape)), np.dtype(np.float16))
    cache: Stored = memory.reshape(blocks, *shape)
    rng = random_for("huge")
    cache[-1] = encode(rng.standard_normal(shape), DType.F16)
    batch = Batch(
        query=encode(rng.standard_normal((1, 8, 64)), DType.F16),
        key_cache=cache,
        value_cache=cache,
        block_table=np.array([[blocks - 1]], np.int32),
        seq_lens=np.array([20], np.int32),
        query_start_loc=np.array([0, 1], np.int32),
        scale=0.125,
    )
    _check(emulation, DType.F16, batch)
