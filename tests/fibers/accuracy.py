"""Each kernel's error against float64, beside that of torch's own operation in the dtype.

The bound: twice torch's largest error, and never less than two units in the output's last place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import operations, references, torch_operations
from .dtypes import DType, Float64, Stored, decode, encode, ulp
from .emulation import Emulation
from .operations import Batch

HEAD_SIZES = (64, 80, 96, 128, 256)
_EPS = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Largest absolute errors of a kernel and of torch; the largest part of the bound in use."""

    kernel: str
    error: float
    torch_error: float
    used: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a kernel, torch and float64 make of the same input."""

    got: Float64
    torch: Float64
    expected: Float64


def measure(emulation: Emulation, kernel: str) -> Measurement:
    """Runs ``fw_<operation>[_<head size>]_<dtype>`` on its standard input."""
    dtype = DType[kernel.rsplit("_", 1)[1].upper()]
    result = run(emulation, kernel)
    error = np.abs(result.got - result.expected)
    torch_error = np.abs(result.torch - result.expected).max()
    bound = np.maximum(2 * torch_error, 2 * ulp(result.expected, dtype))
    return Measurement(
        kernel=kernel,
        error=float(error.max()),
        torch_error=float(torch_error),
        used=float((error / bound).max()),
    )


def run(emulation: Emulation, kernel: str) -> Result:
    """As ``measure``, the numbers themselves."""
    stem, suffix = kernel.removeprefix("fw_").rsplit("_", 1)
    dtype = DType[suffix.upper()]
    rng = random_for(stem)
    simple: dict[str, Callable[[Emulation, DType, np.random.Generator], Result]] = {
        "rms_norm": _rms_norm,
        "fused_add_rms_norm": _fused_add_rms_norm,
        "silu_and_mul": _silu_and_mul,
        "rotary_embedding": _rotary_embedding,
        "reshape_and_cache": _reshape_and_cache,
    }
    if stem in simple:
        return simple[stem](emulation, dtype, rng)
    detail = stem.removeprefix("paged_attention_")
    split = detail == "reduce"
    batch = mixed_batch(rng, dtype, head_size=64 if split else int(detail))
    return attention_result(emulation, dtype, batch, splits=3 if split else 1)


def random_for(name: str) -> np.random.Generator:
    """The same numbers for the same name, in every run."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Stored:
    """Aligned random numbers around 0, rounded to the dtype."""
    return operations.placed(encode(rng.standard_normal(shape), dtype))


def attention_result(emulation: Emulation, dtype: DType, batch: Batch, splits: int = 1) -> Result:
    """paged_attention three ways."""
    got = operations.paged_attention(emulation, dtype, batch, splits)
    return Result(
        got=decode(got, dtype),
        torch=torch_operations.paged_attention(batch, dtype),
        expected=references.paged_attention(batch, dtype),
    )


def mixed_batch(
    rng: np.random.Generator,
    dtype: DType,
    *,
    head_size: int,
    lengths: tuple[tuple[int, int], ...] = ((1, 150), (5, 5), (3, 41), (1, 1), (2, 33)),
    heads: int = 4,
    kv_heads: int = 2,
    block_size: int = 16,
    window: int = 0,
) -> Batch:
    """A batch of (query tokens, sequence length) over a cache whose blocks lie in random order.

    The cache holds more blocks than the sequences use; what is not in use is NaN.
    """
    counts = [-(-length // block_size) for _, length in lengths]
    blocks = sum(counts) + 3
    shape = (blocks, block_size, kv_heads, head_size)
    caches = []
    table = np.full((len(lengths), max(counts) + 2), -1, np.int32)
    order = rng.permutation(blocks).astype(np.int32)
    for sequence, count in enumerate(counts):
        table[sequence, :count], order = order[:count], order[count:]
    for _ in range(2):
        values = np.full(shape, np.nan, np.float32)
        for sequence, (_, length) in enumerate(lengths):
            for position in range(length):
                block = table[sequence, position // block_size]
                row = rng.standard_normal((kv_heads, head_size), np.float32)
                values[block, position % block_size] = row
        caches.append(operations.placed(encode(values, dtype)))
    tokens = sum(count for count, _ in lengths)
    return Batch(
        query=normal(rng, (tokens, heads, head_size), dtype),
        key_cache=caches[0],
        value_cache=caches[1],
        block_table=table,
        seq_lens=np.array([length for _, length in lengths], np.int32),
        query_start_loc=np.cumsum([0, *(count for count, _ in lengths)]).astype(np.int32),
        scale=head_size**-0.5,
        window=window,
    )


def _rms_norm(emulation: Emulation, dtype: DType, rng: np.random.Generator) -> Result:
    x, weight = normal(rng, (5, 2048), dtype), normal(rng, (2048,), dtype)
    got = operations.rms_norm(emulation, dtype, x, weight, _EPS)
    return Result(
        got=decode(got, dtype),
        torch=torch_operations.rms_norm(dtype, x, weight, _EPS),
        expected=references.rms_norm(decode(x, dtype), decode(weight, dtype), _EPS),
    )


def _fused_add_rms_norm(emulation: Emulation, dtype: DType, rng: np.random.Generator) -> Result:
    """The residual's rounding is part of the definition: the norm is measured from there."""
    x, residual = normal(rng, (5, 2048), dtype), normal(rng, (5, 2048), dtype)
    weight = normal(rng, (2048,), dtype)
    got, total = operations.fused_add_rms_norm(emulation, dtype, x, residual, weight, _EPS)
    rounded = encode(decode(x, dtype) + decode(residual, dtype), dtype)
    normed = references.rms_norm(decode(rounded, dtype), decode(weight, dtype), _EPS)
    torch_normed = torch_operations.rms_norm(dtype, rounded, weight, _EPS)
    sums = decode(rounded, dtype)
    return Result(
        got=np.concatenate([decode(got, dtype), decode(total, dtype)]),
        torch=np.concatenate([torch_normed, sums]),
        expected=np.concatenate([normed, sums]),
    )


def _silu_and_mul(emulation: Emulation, dtype: DType, rng: np.random.Generator) -> Result:
    x = operations.placed(encode(4 * rng.standard_normal((3, 2 * 2560)), dtype))
    return Result(
        got=decode(operations.silu_and_mul(emulation, dtype, x), dtype),
        torch=torch_operations.silu_and_mul(dtype, x),
        expected=references.silu_and_mul(decode(x, dtype)),
    )


def _rotary_embedding(emulation: Emulation, dtype: DType, rng: np.random.Generator) -> Result:
    """Neox over 96 of 128 elements; query and key in one row of results."""
    table = rotary_table(512, 96)
    positions = rng.integers(0, 512, 7)
    query, key = normal(rng, (7, 9, 128), dtype), normal(rng, (7, 3, 128), dtype)
    got = operations.rotary_embedding(emulation, dtype, positions, query, key, table, neox=True)
    rows = table[positions]
    both = np.concatenate([query, key], axis=1)
    return Result(
        got=np.concatenate([decode(part, dtype) for part in got], axis=1),
        torch=torch_operations.rotate(dtype, both, rows, neox=True),
        expected=references.rotate(decode(both, dtype), rows.astype(np.float64), neox=True),
    )


def rotary_table(
    positions: int, rotary_size: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Cosines, then sines, of the usual frequencies."""
    frequencies = 10000.0 ** (-np.arange(0, rotary_size, 2) / rotary_size)
    angles = np.arange(positions)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _reshape_and_cache(emulation: Emulation, dtype: DType, rng: np.random.Generator) -> Result:
    """A copy: the bits are compared as they come back, torch's are the input's."""
    key, value = normal(rng, (20, 2, 80), dtype), normal(rng, (20, 2, 80), dtype)
    slots = rng.permutation(64)[:20].astype(np.int64)
    caches = operations.reshape_and_cache(emulation, dtype, key, value, (4, 16, 2, 80), slots)
    rows = np.concatenate([decode(c.reshape(64, 2, 80)[slots], dtype) for c in caches])
    both = np.concatenate([decode(key, dtype), decode(value, dtype)])
    return Result(got=rows, torch=both, expected=both)
