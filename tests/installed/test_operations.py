"""Each operation, dtype and shape against its float64 reference, on the device under test."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.installed import reference
from tests.installed.device import ops
from tests.installed.reference import DTYPES, judge

HIDDEN = (1, 2, 7, 16, 33, 64, 100, 576, 4096)


@pytest.fixture(params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The element type under test."""
    torch.manual_seed(1)
    value: torch.dtype = request.param
    return value


@pytest.mark.parametrize("hidden", HIDDEN)
def test_rms_norm(dtype: torch.dtype, hidden: int) -> None:
    """Rows of any size, with a stride of their own."""
    x = (torch.randn(5, 2 * hidden) * 3).to(dtype)[:, :hidden]
    weight = torch.randn(hidden).to(dtype)
    exact = reference.rms_norm(x, weight, 1e-5)
    judge(ops.rms_norm(x, weight, 1e-5), functional.rms_norm(x, (hidden,), weight, 1e-5), exact)


def test_rms_norm_in_place(dtype: torch.dtype) -> None:
    """``out`` may be ``x``, and is what comes back."""
    x = torch.randn(3, 40).to(dtype)
    weight = torch.randn(40).to(dtype)
    expected = ops.rms_norm(x, weight)
    assert ops.rms_norm(x, weight, out=x) is x
    assert torch.equal(x, expected)


def test_rms_norm_of_more_dimensions(dtype: torch.dtype) -> None:
    """Leading dimensions are rows."""
    x = torch.randn(2, 3, 24).to(dtype)
    weight = torch.ones(24, dtype=dtype)
    rows = ops.rms_norm(x.view(6, 24), weight)
    assert torch.equal(ops.rms_norm(x, weight), rows.view(2, 3, 24))


@pytest.mark.parametrize("hidden", HIDDEN)
def test_fused_add_rms_norm(dtype: torch.dtype, hidden: int) -> None:
    """The sum is torch's sum; the norm is of the rounded sum."""
    x, residual = torch.randn(2, 5, hidden).to(dtype)
    weight = torch.randn(hidden).to(dtype)
    total = x + residual
    ops.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total)
    exact = reference.rms_norm(total, weight, 1e-6)
    judge(x, functional.rms_norm(total, (hidden,), weight, 1e-6), exact)


@pytest.mark.parametrize("size", HIDDEN)
def test_silu_and_mul(dtype: torch.dtype, size: int) -> None:
    """Gates of every magnitude."""
    x = (torch.randn(4, 2 * size) * 6).to(dtype)
    gate, up = x.chunk(2, -1)
    judge(ops.silu_and_mul(x), functional.silu(gate) * up, reference.silu_and_mul(x))


def test_silu_at_its_ends(dtype: torch.dtype) -> None:
    """Exp overflows and underflows as torch's does; NaN stays NaN."""
    gate = torch.tensor([-1e4, -200.0, -90.0, -88.0, -50.0, 0.0, 50.0, 90.0, 1e4, torch.nan])
    gate = gate.to(dtype)
    ours = ops.silu_and_mul(torch.cat((gate, torch.ones_like(gate))).unsqueeze(0))[0]
    assert torch.allclose(ours, functional.silu(gate), rtol=1e-2, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("neox", [True, False], ids=["neox", "gptj"])
@pytest.mark.parametrize(("head_size", "rotary"), [(64, 64), (80, 32), (96, 96), (128, 2), (8, 6)])
def test_rotary_embedding(dtype: torch.dtype, neox: bool, head_size: int, rotary: int) -> None:
    """Query and key are slices of one projection, as a model has them; the rest stays."""
    projection = torch.randn(9, 6, head_size).to(dtype)
    query, key = projection[:, :4], projection[:, 4:]
    positions = torch.tensor([0, 1, 2, 49, 3, 3, 17, 8, 30])
    angle = torch.randn(50, rotary // 2)
    cos_sin = torch.cat((angle.cos(), angle.sin()), -1)
    before = projection.clone()
    exact = reference.rotate(before.double(), positions, cos_sin.double(), neox)
    torchs = reference.rotate(before, positions, cos_sin.to(dtype), neox)
    ops.rotary_embedding(positions, query, key, cos_sin, neox=neox)
    judge(projection, torchs, exact)
    assert torch.equal(projection[..., rotary:], before[..., rotary:])


def test_rotary_embedding_without_keys(dtype: torch.dtype) -> None:
    """No key heads is valid."""
    query = torch.randn(2, 3, 16).to(dtype)
    before = query.clone()
    ops.rotary_embedding(torch.tensor([0, 1]), query, query[:, :0], torch.ones(2, 16))
    assert not torch.equal(query, before)


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_reshape_and_cache(dtype: torch.dtype, block_size: int) -> None:
    """Every slot gets its token, padding none, nothing else changes."""
    key, value = torch.randn(2, 5, 3, 64).to(dtype)
    key = key.transpose(0, 1).contiguous().transpose(0, 1)
    caches = torch.randn(2, 4, block_size, 3, 64).to(dtype)
    expected = caches.clone()
    slots = torch.tensor([0, 3 * block_size, -1, 2 * block_size - 1, 4 * block_size - 1])
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            expected[0].view(-1, 3, 64)[slot] = key[token]
            expected[1].view(-1, 3, 64)[slot] = value[token]
    ops.reshape_and_cache(key, value, caches[0], caches[1], slots)
    assert torch.equal(caches, expected)


MIXED = ((1, 1), (7, 7), (31, 4), (32, 1), (33, 33), (100, 20), (257, 1), (9, 0), (64, 2))


@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_paged_attention(dtype: torch.dtype, head_size: int, block_size: int) -> None:
    """A mixed batch of prefills, chunked prefills and decodes."""
    batch = reference.make_batch(dtype, lengths=MIXED, head_size=head_size, block_size=block_size)
    check_attention(batch)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (8, 8), (40, 1), (28, 4)])
def test_paged_attention_of_groups(dtype: torch.dtype, heads: int, kv_heads: int) -> None:
    """Any number of query heads to a key-value head."""
    check_attention(reference.make_batch(dtype, lengths=MIXED, heads=heads, kv_heads=kv_heads))


@pytest.mark.parametrize("window", [1, 5, 16, 33, 1000])
def test_paged_attention_in_a_window(dtype: torch.dtype, window: int) -> None:
    """What lies before the window is NaN here and must not be read."""
    check_attention(reference.make_batch(dtype, lengths=MIXED, window=window))


@pytest.mark.parametrize("lengths", [((5000, 1),), ((4097, 3), (1, 1)), ((700, 1), (6000, 1))])
def test_paged_attention_of_long_contexts(
    dtype: torch.dtype, lengths: tuple[tuple[int, int], ...]
) -> None:
    """Few sequences and a long context: split, with a second pass."""
    check_attention(reference.make_batch(dtype, lengths=lengths, heads=2, kv_heads=1))
    check_attention(reference.make_batch(dtype, lengths=lengths, heads=2, kv_heads=1, window=900))


def check_attention(batch: reference.Batch) -> None:
    """The result, also into an ``out`` with strides of its own."""
    exact, torchs = reference.paged_attention(batch)
    arguments = (*batch.tensors(), batch.scale)
    result = ops.paged_attention(*arguments, window=batch.window)
    judge(result, torchs, exact)
    wide = torch.empty(*batch.query.shape[:-1], 300, dtype=batch.query.dtype)
    out = wide[..., : batch.query.shape[-1]]
    ops.paged_attention(*arguments, window=batch.window, out=out)
    assert torch.equal(out, result)


def test_large_scores(dtype: torch.dtype) -> None:
    """Scores far beyond the range of exp leave no infinity and no NaN."""
    batch = reference.make_batch(dtype, lengths=((70, 3), (40, 1)))
    batch.query.mul_(60)
    exact, torchs = reference.paged_attention(batch)
    judge(ops.paged_attention(*batch.tensors(), batch.scale), torchs, exact)


def test_nan_in_a_query_stays_there(dtype: torch.dtype) -> None:
    """NaN in, NaN out, and only in that token's head."""
    batch = reference.make_batch(dtype, lengths=((70, 3), (40, 1)))
    batch.query[1, 2, 5] = torch.nan
    result = ops.paged_attention(*batch.tensors(), batch.scale)
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[1, 2] = True
    assert torch.equal(result.isnan().all(-1), expected)
    assert torch.equal(result.isnan().any(-1), expected)


def test_empty_input(dtype: torch.dtype) -> None:
    """No tokens is valid for every operation."""
    rows = torch.empty(0, 64, dtype=dtype)
    weight = torch.ones(64, dtype=dtype)
    assert ops.rms_norm(rows, weight).shape == (0, 64)
    ops.fused_add_rms_norm(rows, rows.clone(), weight)
    assert ops.silu_and_mul(rows).shape == (0, 32)
    heads = torch.empty(0, 4, 64, dtype=dtype)
    none = torch.empty(0, dtype=torch.int64)
    ops.rotary_embedding(none, heads, heads.clone(), torch.ones(3, 64))
    cache = torch.zeros(2, 16, 4, 64, dtype=dtype)
    ops.reshape_and_cache(heads, heads, cache, cache.clone(), none)
    result = ops.paged_attention(
        heads,
        cache,
        cache,
        torch.empty(0, 2, dtype=torch.int32),
        torch.empty(0, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
        1.0,
    )
    assert result.shape == (0, 4, 64)


def test_results_do_not_depend_on_threads(dtype: torch.dtype) -> None:
    """One thread or all: the same bytes."""
    batch = reference.make_batch(dtype, lengths=((3000, 2), (50, 50)))
    threads = torch.get_num_threads()
    many = ops.paged_attention(*batch.tensors(), batch.scale)
    torch.set_num_threads(1)
    try:
        one = ops.paged_attention(*batch.tensors(), batch.scale)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(many, one)
