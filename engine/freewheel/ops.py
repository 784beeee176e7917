"""One typed function an operation; importing this module loads the native libraries.

Tensors are float32, float16 or bfloat16, all alike and on one device, unless said otherwise.
Results are computed in float32 and rounded once. Arguments whose shapes, dtypes, devices or strides
do not fit raise ``RuntimeError`` with a sentence that names the argument, before any memory is
touched. So do numbers in a tensor that are out of range (positions, slots, blocks, lengths) on the
CPU. On CUDA these are not read back, since that would wait for the device: nothing is raised, no
memory outside the tensors is touched, and what comes out is NaN or left unwritten, as each function
says. Nothing here has a gradient.
"""

from __future__ import annotations

from freewheel._native import load

load()  # before torch, so that what is wrong with it is said

import torch  # noqa: E402

__all__ = [
    "cpu_isa",
    "fused_add_rms_norm",
    "paged_attention",
    "reshape_and_cache",
    "rms_norm",
    "rotary_embedding",
    "silu_and_mul",
]


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, out: torch.Tensor | None = None
) -> torch.Tensor:
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension.

    ``x`` is ``[..., hidden]``, ``weight`` ``[hidden]``; ``out``, of ``x``'s shape, is written to
    and returned, and may be ``x``.
    """
    result = torch.empty_like(x) if out is None else out
    torch.ops.freewheel.rms_norm(_rows(result), _rows(x), weight, eps)
    return result


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> None:
    """In place: ``residual += x``, then ``x = rms_norm(residual, weight, eps)``.

    ``x`` and ``residual`` are ``[..., hidden]``, ``weight`` is ``[hidden]``.
    """
    torch.ops.freewheel.fused_add_rms_norm(_rows(x), _rows(residual), weight, eps)


def silu_and_mul(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """``silu(gate) * up`` where ``x`` is ``[..., 2 * size]``: first the gates, then the ups."""
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    result = x.new_empty(shape) if out is None else out
    torch.ops.freewheel.silu_and_mul(_rows(result), _rows(x))
    return result


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin: torch.Tensor,
    *,
    neox: bool = True,
) -> None:
    """Rotate, in place, the first ``rotary_size`` elements of each head by its token's position.

    ``positions`` is ``[tokens]`` (int64), ``query`` ``[tokens, heads, head_size]``, ``key``
    ``[tokens, kv_heads, head_size]``, ``cos_sin`` ``[max_position, rotary_size]`` (float32: half
    cosines, then half sines). ``neox`` pairs ``(i, i + rotary_size / 2)``, otherwise (GPT-J)
    ``(2i, 2i + 1)``. A position out of range is an error on the CPU; on CUDA it makes that token's
    rotated elements NaN.
    """
    torch.ops.freewheel.rotary_embedding(positions, query, key, cos_sin, neox)


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each token's key and value to its slot of the paged cache.

    ``key`` and ``value`` are ``[tokens, kv_heads, head_size]``, the caches
    ``[blocks, block_size, kv_heads, head_size]`` (contiguous; 8, 16 or 32 tokens a block),
    ``slot_mapping`` ``[tokens]`` (int64): block times block size plus offset, or -1 for padding,
    which writes nothing. A slot outside the cache is an error on the CPU; on CUDA it writes nothing
    either: the token is dropped.
    """
    torch.ops.freewheel.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)


def paged_attention(  # noqa: PLR0917 - as the operator has them
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start_loc: torch.Tensor,
    scale: float,
    *,
    window: int = 0,
    longest: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of a mixed batch of prefills and decodes over a paged cache.

    ``query`` is ``[tokens, heads, head_size]`` with the tokens of sequence ``s`` at
    ``query_start_loc[s] .. query_start_loc[s + 1]``; they are the last of its ``seq_lens[s]``
    tokens, all of which are in the cache. ``block_table`` is ``[sequences, max_blocks]``,
    ``seq_lens`` ``[sequences]``, ``query_start_loc`` ``[sequences + 1]`` (int32 all).
    ``window > 0`` lets a token see itself and the ``window - 1`` before it. ``longest`` is the
    greatest of ``seq_lens``; left out, it is read, which on CUDA waits for the device.

    A block number outside the cache, or a length beyond the block table, is an error on the CPU; on
    CUDA it makes the token's output row NaN, and nothing is read there.
    """
    result = torch.empty_like(query) if out is None else out
    if longest is None:
        longest = int(seq_lens.max()) if seq_lens.numel() > 0 else 0
    torch.ops.freewheel.paged_attention(
        result,
        query,
        key_cache,
        value_cache,
        block_table,
        seq_lens,
        query_start_loc,
        scale,
        window,
        longest,
    )
    return result


def cpu_isa() -> str:
    """The CPU kernels in use: ``x86-64-v2``, ``avx2`` or ``avx512`` (see ``FREEWHEEL_ISA``)."""
    isa: str = torch.ops.freewheel.cpu_isa()
    return isa


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """``[..., n]`` as ``[rows, n]``, always a view, so that what is written arrives."""
    return tensor if tensor.dim() == 2 else tensor.view(-1, tensor.shape[-1])
