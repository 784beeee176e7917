"""The operations in float64, from the definitions: what every kernel is measured against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType, Float64, decode
from .operations import Batch


def rms_norm(x: Float64, weight: Float64, eps: float) -> Float64:
    """For x [tokens, hidden]."""
    mean_square: Float64 = np.mean(x * x, axis=1, keepdims=True)
    return x / np.sqrt(mean_square + eps) * weight


def silu_and_mul(x: Float64) -> Float64:
    """For x [tokens, 2 * size]."""
    gate, up = np.split(x, 2, axis=1)
    return gate / (1.0 + np.exp(-gate)) * up


def rotate(x: Float64, cos_sin: Float64, neox: bool) -> Float64:
    """For x [tokens, heads, head size], cos_sin [tokens, rotary size]: a row of it per token."""
    pairs = cos_sin.shape[1] // 2
    cosine, sine = cos_sin[:, None, :pairs], cos_sin[:, None, pairs:]
    lows = slice(0, pairs) if neox else slice(0, 2 * pairs, 2)
    highs = slice(pairs, 2 * pairs) if neox else slice(1, 2 * pairs, 2)
    out = x.copy()
    out[..., lows] = x[..., lows] * cosine - x[..., highs] * sine
    out[..., highs] = x[..., highs] * cosine + x[..., lows] * sine
    return out


def gather(
    cache: NDArray[np.generic], table: NDArray[np.int32], length: int
) -> NDArray[np.generic]:
    """The first ``length`` rows [length, KV heads, head size] of one sequence."""
    blocks = table[: -(-length // cache.shape[1])]
    return cache[blocks].reshape(-1, *cache.shape[2:])[:length]


def paged_attention(batch: Batch, dtype: DType) -> Float64:
    """Softmax over each query token's visible context; zeros where there is none."""
    query = decode(batch.query, dtype)
    out = np.zeros(query.shape)
    group = query.shape[1] // batch.key_cache.shape[2]
    for sequence, length in enumerate(batch.seq_lens.tolist()):
        first, stop = batch.query_start_loc[sequence : sequence + 2].tolist()
        table = batch.block_table[sequence]
        keys = decode(gather(batch.key_cache, table, length), dtype).repeat(group, axis=1)
        values = decode(gather(batch.value_cache, table, length), dtype).repeat(group, axis=1)
        for token in range(first, stop):
            end = length - stop + token + 1
            begin = max(0, end - batch.window) if batch.window else 0
            if end <= begin:
                continue
            scores = np.einsum("hd,khd->hk", query[token], keys[begin:end]) * batch.scale
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            out[token] = np.einsum("hk,khd->hd", weights, values[begin:end])
    return out
