"""An argument that does not fit is refused by name, before any memory is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.installed.reference import make_batch

Change = Callable[[dict[str, Any]], Any]


def arguments(operation: str) -> dict[str, Any]:
    """Arguments that fit, by name, in the operator's order."""
    x = torch.ones(3, 64)
    heads = torch.ones(3, 4, 64)
    cache = torch.zeros(5, 16, 4, 64)
    match operation:
        case "rms_norm":
            return {"out": x.clone(), "x": x, "weight": torch.ones(64), "eps": 1e-6}
        case "fused_add_rms_norm":
            return {"x": x, "residual": x.clone(), "weight": torch.ones(64), "eps": 1e-6}
        case "silu_and_mul":
            return {"out": torch.ones(3, 32), "x": x}
        case "rotary_embedding":
            return {
                "positions": torch.tensor([0, 1, 2]),
                "query": heads,
                "key": heads[:, :2].clone(),
                "cos_sin": torch.ones(10, 32),
                "neox": True,
            }
        case "reshape_and_cache":
            return {
                "key": heads,
                "value": heads.clone(),
                "key_cache": cache,
                "value_cache": cache.clone(),
                "slot_mapping": torch.tensor([0, 1, 79]),
            }
        case _:
            batch = make_batch(torch.float32, lengths=((20, 2), (5, 1)))
            names = ("query", "key_cache", "value_cache", "block_table", "seq_lens")
            named = dict(zip((*names, "query_start_loc"), batch.tensors(), strict=True))
            rest = {"scale": 0.1, "window": 0, "longest": 20}
            return {"out": torch.zeros_like(batch.query), **named, **rest}


def set_to(name: str, value: Any) -> Change:
    """Replace one argument."""
    return lambda given: given.update({name: value})


def put(name: str, index: Any, value: int) -> Change:
    """Change one element of an argument."""
    return lambda given: given[name].__setitem__(index, value)


def apply(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Replace one argument by a function of it."""
    return lambda given: given.update({name: change(given[name])})


def double(tensor: torch.Tensor) -> torch.Tensor:
    """In float64."""
    return tensor.double()


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape with the first two dimensions' strides swapped."""
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def sparse_last(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape with a last dimension of stride 2."""
    return torch.stack((tensor, tensor), -1).flatten(-2)[..., ::2]


def one_row(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape, all rows the same memory."""
    return tensor[:1].expand_as(tensor)


APART = "must be contiguous; its strides are [256, 1280, 64, 1] with shape [5, 16, 4, 64]"
LAST = "must have a last dimension of stride 1, not 2"
ROTARY = "must have an even last dimension (the rotary size), at most the head size 64, not 66"
OVERLAP = "is written to, so its elements must not overlap; its strides are "
CASES: list[tuple[str, Change, str]] = [
    ("rms_norm", apply("x", double), "x must be float32, float16 or bfloat16, not Double"),
    ("rms_norm", set_to("x", torch.ones(64)), "x must have 2 dimensions, not shape [64]"),
    ("rms_norm", apply("x", sparse_last), f"x {LAST}"),
    ("rms_norm", set_to("weight", torch.ones(63)), "weight must have shape [64], not [63]"),
    ("rms_norm", apply("weight", torch.Tensor.half), "weight is float16, but x is float32"),
    (
        "rms_norm",
        apply("weight", sparse_last),
        "weight must be contiguous; its strides are [2] with shape [64]",
    ),
    ("rms_norm", set_to("out", torch.ones(2, 64)), "out must have shape [3, 64], not [2, 64]"),
    ("rms_norm", apply("out", torch.Tensor.bfloat16), "out is bfloat16, but x is float32"),
    ("rms_norm", apply("out", one_row), f"out {OVERLAP}[0, 1] with shape [3, 64]"),
    ("fused_add_rms_norm", apply("x", one_row), f"x {OVERLAP}[0, 1] with shape [3, 64]"),
    (
        "fused_add_rms_norm",
        set_to("residual", torch.ones(3, 63)),
        "residual must have shape [3, 64], not [3, 63]",
    ),
    ("fused_add_rms_norm", apply("residual", sparse_last), f"residual {LAST}"),
    (
        "fused_add_rms_norm",
        set_to("weight", torch.ones(1, 64)),
        "weight must have shape [64], not [1, 64]",
    ),
    (
        "silu_and_mul",
        set_to("x", torch.ones(3, 63)),
        "x must have an even last dimension (gate, then up), not 63",
    ),
    ("silu_and_mul", set_to("out", torch.ones(3, 31)), "out must have shape [3, 32], not [3, 31]"),
    (
        "silu_and_mul",
        apply("x", torch.Tensor.int),
        "x must be float32, float16 or bfloat16, not int32",
    ),
    (
        "rotary_embedding",
        apply("positions", torch.Tensor.int),
        "positions must be int64, not int32",
    ),
    (
        "rotary_embedding",
        set_to("positions", torch.tensor([0, 1])),
        "positions must have shape [3], not [2]",
    ),
    ("rotary_embedding", put("positions", 1, 10), "positions[1] is 10, not in 0 .. 9"),
    ("rotary_embedding", put("positions", 2, -1), "positions[2] is -1, not in 0 .. 9"),
    (
        "rotary_embedding",
        set_to("query", torch.ones(3, 64)),
        "query must have 3 dimensions, not shape [3, 64]",
    ),
    (
        "rotary_embedding",
        set_to("key", torch.ones(3, 2, 32)),
        "key must have shape [3, 2, 64], not [3, 2, 32]",
    ),
    ("rotary_embedding", set_to("cos_sin", torch.ones(10, 66)), f"cos_sin {ROTARY}"),
    (
        "rotary_embedding",
        apply("cos_sin", torch.Tensor.half),
        "cos_sin must be float32, not float16",
    ),
    ("reshape_and_cache", put("slot_mapping", 0, 80), "slot_mapping[0] is 80, not in -1 .. 79"),
    ("reshape_and_cache", put("slot_mapping", 2, -2), "slot_mapping[2] is -2, not in -1 .. 79"),
    (
        "reshape_and_cache",
        apply("slot_mapping", torch.Tensor.int),
        "slot_mapping must be int64, not int32",
    ),
    (
        "reshape_and_cache",
        set_to("key", torch.ones(3, 4, 40)),
        "key must have a head size (its last dimension) of 64, 80, 96, 128 or 256, not 40",
    ),
    (
        "reshape_and_cache",
        set_to("value", torch.ones(3, 2, 64)),
        "value must have shape [3, 4, 64], not [3, 2, 64]",
    ),
    (
        "reshape_and_cache",
        set_to("key_cache", torch.ones(5, 16, 4, 80)),
        "value_cache must have shape [5, 16, 4, 80], not [5, 16, 4, 64]",
    ),
    (
        "reshape_and_cache",
        apply("key_cache", transposed),
        f"key_cache {APART}",
    ),
    (
        "paged_attention",
        apply("query", double),
        "query must be float32, float16 or bfloat16, not Double",
    ),
    (
        "paged_attention",
        set_to("query", torch.ones(3, 3, 64)),
        "out must have shape [3, 3, 64], not [3, 4, 64]",
    ),
    (
        "paged_attention",
        apply("key_cache", torch.Tensor.half),
        "key_cache is float16, but query is float32",
    ),
    (
        "paged_attention",
        apply("block_table", torch.Tensor.long),
        "block_table must be int32, not int64",
    ),
    ("paged_attention", put("block_table", (0, 1), 6), "block_table[0, 1] is 6, not in 0 .. 5"),
    ("paged_attention", put("block_table", (1, 0), -1), "block_table[1, 0] is -1, not in 0 .. 5"),
    (
        "paged_attention",
        put("seq_lens", 0, 65),
        "seq_lens[0] is 65, but block_table has room for 64",
    ),
    ("paged_attention", put("seq_lens", 0, 1), "seq_lens[0] is 1, less than its 2 query tokens"),
    (
        "paged_attention",
        set_to("seq_lens", torch.ones(3, dtype=torch.int32)),
        "seq_lens must have shape [2], not [3]",
    ),
    ("paged_attention", put("query_start_loc", 0, 1), "query_start_loc[0] is 1, not 0"),
    (
        "paged_attention",
        put("query_start_loc", 1, 4),
        "query_start_loc[2] is 3, less than the 4 before it",
    ),
    (
        "paged_attention",
        put("query_start_loc", 2, 2),
        "query_start_loc[2] is 2, but query has 3 tokens",
    ),
    (
        "paged_attention",
        set_to("query_start_loc", torch.zeros(2, dtype=torch.int32)),
        "query_start_loc must have shape [3], not [2]",
    ),
    ("paged_attention", set_to("window", -1), "window must be 0 (none) or positive, not -1"),
    ("paged_attention", set_to("longest", -1), "longest must not be negative, but is -1"),
]


@pytest.mark.parametrize(
    ("operation", "change", "message"), CASES, ids=[f"{case[0]}-{case[2][:40]}" for case in CASES]
)
def test_refused(operation: str, change: Change, message: str) -> None:
    """The exact sentence, and nothing written."""
    import freewheel

    freewheel.load()
    given = arguments(operation)
    change(given)
    before = [value.clone() for value in given.values() if isinstance(value, torch.Tensor)]
    with pytest.raises(RuntimeError) as raised:
        getattr(torch.ops.freewheel, operation)(*given.values())
    assert str(raised.value).splitlines()[0] == f"{operation}: {message}"
    after = [value for value in given.values() if isinstance(value, torch.Tensor)]
    assert all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True)
    )


@pytest.mark.parametrize("blocks", [1, 7, 64])
def test_block_sizes(blocks: int) -> None:
    """Blocks of 8, 16 and 32 tokens exist, no others."""
    from freewheel import ops

    cache = torch.zeros(2, blocks, 1, 64)
    key = torch.zeros(1, 1, 64)
    with pytest.raises(RuntimeError) as raised:
        ops.reshape_and_cache(key, key, cache, cache, torch.tensor([0]))
    assert str(raised.value) == (
        "reshape_and_cache: key_cache must have blocks of 8, 16 or 32 tokens (its second "
        f"dimension), not {blocks}"
    )


def test_heads_that_do_not_divide() -> None:
    """Query heads are a multiple of key-value heads."""
    from freewheel import ops

    batch = make_batch(torch.float32, lengths=((5, 1),), heads=4, kv_heads=2)
    cache = torch.zeros(2, 16, 3, 64)
    with pytest.raises(
        RuntimeError, match="query must have a multiple of the cache's 3 heads, not 4"
    ):
        ops.paged_attention(batch.query, cache, cache, *batch.tensors()[3:], 1.0)


def test_transposed_output_is_fine() -> None:
    """Strides in any order, as long as no two elements share memory."""
    from freewheel import ops

    batch = make_batch(torch.float32, lengths=((20, 2), (5, 1)))
    expected = ops.paged_attention(*batch.tensors(), batch.scale)
    out = torch.empty(4, 3, 64).transpose(0, 1)
    assert torch.equal(ops.paged_attention(*batch.tensors(), batch.scale, out=out), expected)
