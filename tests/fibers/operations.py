"""Each operation over numpy arrays in a dtype's storage, run by an emulation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType, Stored
from .emulation import Emulation
from .records import records

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

_GUARD_BYTES = 256
_POISON = 0xFF  # every float of these bytes is a NaN, every integer is -1


class OverrunError(Exception):
    """A kernel wrote beside its output."""


@contextmanager
def output(
    shape: tuple[int, ...], storage: np.dtype[np.generic], skew: int = 0, gap: int = 0
) -> Iterator[Stored]:
    """A poisoned array that is checked on leaving: what lies around it must be as it was.

    It starts ``skew`` bytes after a multiple of 16, and ``gap`` elements lie behind each row of the
    last axis. Raises ``OverrunError``.
    """
    spaced = (*shape[:-1], shape[-1] + gap)
    size = int(np.prod(spaced)) * storage.itemsize
    memory = np.full(size + 2 * _GUARD_BYTES + 32, _POISON, np.uint8)
    start = _GUARD_BYTES + -memory.ctypes.data % 16 + skew
    rows = memory[start : start + size].view(storage).reshape(spaced)
    yield rows[..., : shape[-1]]
    gaps = np.ascontiguousarray(rows[..., shape[-1] :]).view(np.uint8)
    for around in (memory[:start], memory[start + size :], gaps):
        if (around != _POISON).any():
            raise OverrunError("bytes beside the output have changed")


def placed(array: Stored, skew: int = 0) -> Stored:
    """A copy that is 16-byte aligned plus ``skew`` bytes, whatever numpy would have chosen."""
    with output(array.shape, array.dtype, skew) as copy:
        copy[...] = array
    return copy


def row_stride(array: Stored, axis: int = 0) -> int:
    """Elements between neighbours along ``axis``."""
    return array.strides[axis] // array.itemsize


def rms_norm(
    emulation: Emulation,
    dtype: DType,
    x: Stored,
    weight: Stored,
    eps: float,
    *,
    skew: int = 0,
    gap: int = 0,
) -> Stored:
    """Rows of x [tokens, hidden] may be apart. Returns out; skew and gap are of out."""
    with output(x.shape, dtype.storage, skew, gap) as out:
        args = records()["FwRmsNormArgs"](
            out=out.ctypes.data,
            x=x.ctypes.data,
            weight=weight.ctypes.data,
            tokens=x.shape[0],
            hidden=x.shape[1],
            out_stride=row_stride(out),
            x_stride=row_stride(x),
            eps=eps,
            dtype=dtype,
        )
        emulation.run("rms_norm", args)
    return out


def fused_add_rms_norm(  # noqa: PLR0917 (as the operation has them)
    emulation: Emulation, dtype: DType, x: Stored, residual: Stored, weight: Stored, eps: float
) -> tuple[Stored, Stored]:
    """Leaves its inputs alone; returns x and residual as the operation would change them."""
    with (
        output(x.shape, dtype.storage) as new_x,
        output(x.shape, dtype.storage) as new_residual,
    ):
        new_x[...], new_residual[...] = x, residual
        args = records()["FwFusedAddRmsNormArgs"](
            x=new_x.ctypes.data,
            residual=new_residual.ctypes.data,
            weight=weight.ctypes.data,
            tokens=x.shape[0],
            hidden=x.shape[1],
            x_stride=row_stride(new_x),
            residual_stride=row_stride(new_residual),
            eps=eps,
            dtype=dtype,
        )
        emulation.run("fused_add_rms_norm", args)
    return new_x, new_residual


def silu_and_mul(
    emulation: Emulation, dtype: DType, x: Stored, skew: int = 0, gap: int = 0
) -> Stored:
    """Takes x [tokens, 2 * size]. Returns out [tokens, size]; skew and gap are of out."""
    tokens, size = x.shape[0], x.shape[1] // 2
    with output((tokens, size), dtype.storage, skew, gap) as out:
        args = records()["FwSiluAndMulArgs"](
            out=out.ctypes.data,
            x=x.ctypes.data,
            tokens=tokens,
            size=size,
            out_stride=row_stride(out),
            x_stride=row_stride(x),
            dtype=dtype,
        )
        emulation.run("silu_and_mul", args)
    return out


def rotary_embedding(  # noqa: PLR0917 (as the operation has them)
    emulation: Emulation,
    dtype: DType,
    positions: Int64,
    query: Stored,
    key: Stored,
    cos_sin: NDArray[np.float32],
    *,
    neox: bool,
    gap: int = 0,
) -> tuple[Stored, Stored]:
    """Takes query and key [tokens, heads, head size]; returns both, rotated, heads gap apart."""
    with (
        output(query.shape, dtype.storage, gap=gap) as new_query,
        output(key.shape, dtype.storage, gap=gap) as new_key,
    ):
        new_query[...], new_key[...] = query, key
        args = records()["FwRotaryEmbeddingArgs"](
            positions=positions.ctypes.data,
            query=new_query.ctypes.data,
            key=new_key.ctypes.data if key.shape[1] else None,
            cos_sin=cos_sin.ctypes.data,
            tokens=query.shape[0],
            query_heads=query.shape[1],
            key_heads=key.shape[1],
            head_size=query.shape[2],
            rotary_size=cos_sin.shape[1],
            max_position=cos_sin.shape[0],
            query_stride=row_stride(new_query),
            key_stride=row_stride(new_key),
            query_head_stride=row_stride(new_query, 1),
            key_head_stride=row_stride(new_key, 1),
            neox=int(neox),
            dtype=dtype,
        )
        emulation.run("rotary_embedding", args)
    return new_query, new_key


def reshape_and_cache(  # noqa: PLR0917 (as the operation has them)
    emulation: Emulation,
    dtype: DType,
    key: Stored,
    value: Stored,
    cache_shape: tuple[int, int, int, int],
    slots: Int64,
) -> tuple[Stored, Stored]:
    """Takes key and value [tokens, KV heads, head size]; both caches, poison where unwritten."""
    blocks, block_size, kv_heads, head_size = cache_shape
    with (
        output(cache_shape, dtype.storage) as key_cache,
        output(cache_shape, dtype.storage) as value_cache,
    ):
        args = records()["FwReshapeAndCacheArgs"](
            key=key.ctypes.data,
            value=value.ctypes.data,
            key_cache=key_cache.ctypes.data,
            value_cache=value_cache.ctypes.data,
            slot_mapping=slots.ctypes.data,
            tokens=key.shape[0],
            kv_heads=kv_heads,
            head_size=head_size,
            blocks=blocks,
            key_stride=row_stride(key),
            value_stride=row_stride(value),
            key_head_stride=row_stride(key, 1),
            value_head_stride=row_stride(value, 1),
            block_size_log2=block_size.bit_length() - 1,
            dtype=dtype,
        )
        emulation.run("reshape_and_cache", args)
    return key_cache, value_cache


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What paged_attention reads.

    query [tokens, heads, head size], caches [blocks, block size, KV heads, head size], block_table
    [sequences, max blocks], seq_lens [sequences], query_start_loc [sequences + 1].
    """

    query: Stored
    key_cache: Stored
    value_cache: Stored
    block_table: Int32
    seq_lens: Int32
    query_start_loc: Int32
    scale: float
    window: int = 0


def paged_attention(
    emulation: Emulation, dtype: DType, batch: Batch, splits: int = 1, gap: int = 0
) -> Stored:
    """Returns out [tokens, heads, head size]; with several splits the reduction runs too."""
    tokens, heads, head_size = batch.query.shape
    single = np.dtype(np.float32)
    with (
        output(batch.query.shape, dtype.storage, gap=gap) as out,
        output((tokens, heads, splits, head_size), single) as partial_out,
        output((tokens, heads, splits), single) as partial_max,
        output((tokens, heads, splits), single) as partial_sum,
    ):
        args = records()["FwPagedAttentionArgs"](
            out=out.ctypes.data,
            query=batch.query.ctypes.data,
            key_cache=batch.key_cache.ctypes.data,
            value_cache=batch.value_cache.ctypes.data,
            block_table=batch.block_table.ctypes.data,
            seq_lens=batch.seq_lens.ctypes.data,
            query_start_loc=batch.query_start_loc.ctypes.data,
            partial_out=None if splits == 1 else partial_out.ctypes.data,
            partial_max=None if splits == 1 else partial_max.ctypes.data,
            partial_sum=None if splits == 1 else partial_sum.ctypes.data,
            tokens=tokens,
            sequences=len(batch.seq_lens),
            heads=heads,
            kv_heads=batch.key_cache.shape[2],
            head_size=head_size,
            blocks=batch.key_cache.shape[0],
            max_blocks=batch.block_table.shape[1],
            block_table_stride=row_stride(batch.block_table),
            query_stride=row_stride(batch.query),
            query_head_stride=row_stride(batch.query, 1),
            out_stride=row_stride(out),
            out_head_stride=row_stride(out, 1),
            window=batch.window,
            scale=batch.scale,
            block_size_log2=batch.key_cache.shape[1].bit_length() - 1,
            splits=splits,
            dtype=dtype,
        )
        emulation.run("paged_attention", args)
        if splits > 1:
            emulation.run("paged_attention_reduce", args)
    return out
