"""torch's own operations in the dtype, the yardstick of what rounding may cost."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from .dtypes import DType, Float64, Stored
from .operations import Batch
from .references import gather

_DTYPES = {DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16}


def to_torch(stored: Stored, dtype: DType) -> torch.Tensor:
    """The same bits."""
    contiguous = np.ascontiguousarray(stored)
    if dtype is DType.BF16:
        return torch.from_numpy(contiguous.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(contiguous)


def from_torch(tensor: torch.Tensor) -> Float64:
    """The same numbers."""
    numbers: Float64 = tensor.to(torch.float64).numpy()
    return numbers


def rms_norm(dtype: DType, x: Stored, weight: Stored, eps: float) -> Float64:
    """``torch.nn.functional.rms_norm``."""
    rows = to_torch(x, dtype)
    return from_torch(functional.rms_norm(rows, rows.shape[1:], to_torch(weight, dtype), eps))


def silu_and_mul(dtype: DType, x: Stored) -> Float64:
    """``silu(gate) * up``."""
    gate, up = to_torch(x, dtype).chunk(2, dim=1)
    return from_torch(functional.silu(gate) * up)


def rotate(dtype: DType, x: Stored, cos_sin: NDArray[np.float32], neox: bool) -> Float64:
    """For x [tokens, heads, head size]; cos_sin: a row per token, rounded as models do."""
    heads = to_torch(x, dtype)
    table = torch.from_numpy(cos_sin).to(_DTYPES[dtype])[:, None]
    cosine, sine = table.chunk(2, dim=2)
    size = table.shape[2]
    turned, rest = heads[..., :size], heads[..., size:]
    if neox:
        low, high = turned.chunk(2, dim=2)
        parts = (low * cosine - high * sine, high * cosine + low * sine)
        return from_torch(torch.cat([*parts, rest], dim=2))
    low, high = turned[..., ::2], turned[..., 1::2]
    pairs = torch.stack([low * cosine - high * sine, high * cosine + low * sine], dim=3)
    return from_torch(torch.cat([pairs.flatten(2), rest], dim=2))


def paged_attention(batch: Batch, dtype: DType) -> Float64:
    """Gathers each sequence, then ``scaled_dot_product_attention`` under its mask."""
    out = np.zeros(batch.query.shape)
    group = batch.query.shape[1] // batch.key_cache.shape[2]
    for sequence, length in enumerate(batch.seq_lens.tolist()):
        first, stop = batch.query_start_loc[sequence : sequence + 2].tolist()
        table = batch.block_table[sequence]
        keys, values = (
            to_torch(gather(cache, table, length), dtype)
            .repeat_interleave(group, dim=1)
            .transpose(0, 1)[None]
            for cache in (batch.key_cache, batch.value_cache)
        )
        queries = to_torch(batch.query[first:stop], dtype).transpose(0, 1)[None]
        ends = torch.arange(length - stop + first + 1, length + 1)[:, None]
        positions = torch.arange(length)[None]
        mask = positions < ends
        if batch.window:
            mask &= positions >= ends - batch.window
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=batch.scale
        )
        out[first:stop] = from_torch(attended[0].transpose(0, 1))
    return out
