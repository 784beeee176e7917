"""Decode attention on the CPU: freewheel.ops.paged_attention against gather + SDPA, in one run.

    python benchmarks/attention.py [--batch 16] [--context 1024] [--check 3]

Both read the same paged cache. torch's side gathers each sequence's blocks into contiguous keys
and values, then calls scaled_dot_product_attention over the batch. The last columns are freewheel
on one thread, and its speed-up from that to all. With ``--check N`` the exit code is 1 unless, in
every dtype, freewheel is at least N times as fast and, where there are threads, at least 1.5 times
as fast on all as on one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

import freewheel

THREADED = 1.5  # times as fast on all threads as on one


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One decode batch over a paged cache."""

    batch: int
    context: int
    heads: int
    kv_heads: int
    head_size: int
    block_size: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """The tensors of a ``Shape`` in one dtype; blocks lie in shuffled order."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor
    scale: float

    def freewheel(self) -> torch.Tensor:
        """Paged attention in place."""
        return freewheel.ops.paged_attention(
            self.query,
            self.key_cache,
            self.value_cache,
            self.block_table,
            self.seq_lens,
            self.query_start_loc,
            self.scale,
        )

    def gather_and_sdpa(self) -> torch.Tensor:
        """What a user without a paged kernel does: copy the blocks together, then SDPA.

        The heads of a group stand as query tokens, so that torch need not repeat keys and values:
        faster than ``enable_gqa``.
        """
        sequences, blocks = self.block_table.shape
        length = blocks * self.key_cache.shape[1]
        index = self.block_table.reshape(-1).long()
        shape = (sequences, length, *self.key_cache.shape[2:])
        keys = self.key_cache[index].view(shape).transpose(1, 2)
        values = self.value_cache[index].view(shape).transpose(1, 2)
        query = self.query.view(sequences, keys.shape[1], -1, self.query.shape[-1])
        out = scaled_dot_product_attention(query, keys, values, scale=self.scale)
        return out.view(self.query.shape)


def make_case(shape: Shape, dtype: torch.dtype) -> Case:
    """Random keys, values and queries; every sequence has the whole context."""
    torch.manual_seed(0)
    per_sequence = shape.context // shape.block_size
    blocks = shape.batch * per_sequence
    cache = (blocks, shape.block_size, shape.kv_heads, shape.head_size)
    order = torch.randperm(blocks, dtype=torch.int32)
    return Case(
        query=torch.randn(shape.batch, shape.heads, shape.head_size).to(dtype),
        key_cache=torch.randn(cache).to(dtype),
        value_cache=torch.randn(cache).to(dtype),
        block_table=order.view(shape.batch, per_sequence),
        seq_lens=torch.full((shape.batch,), shape.context, dtype=torch.int32),
        query_start_loc=torch.arange(shape.batch + 1, dtype=torch.int32),
        scale=shape.head_size**-0.5,
    )


def median_ms(run: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of ``run``, after two calls to warm up."""
    run()
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def compare(shape: Shape, dtype: torch.dtype, repeats: int) -> tuple[float, float]:
    """Print one row; return how many times faster freewheel is than torch, and on all threads."""
    case = make_case(shape, dtype)
    difference = (case.freewheel().float() - case.gather_and_sdpa().float()).abs().max().item()
    ours = median_ms(case.freewheel, repeats)
    theirs = median_ms(case.gather_and_sdpa, repeats)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one = median_ms(case.freewheel, repeats)
    torch.set_num_threads(threads)
    name = str(dtype).removeprefix("torch.")
    print(
        f"{name:9} {ours:11.2f} {theirs:12.2f} {theirs / ours:7.1f}x {difference:11.1e}"
        f" {one:10.2f} {one / ours:9.2f}x"
    )
    return theirs / ours, one / ours


def main() -> int:
    """Print the table; 1 when ``--check`` is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-size", type=int, default=128)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--check", type=float, default=0.0)
    options = parser.parse_args()
    shape = Shape(
        batch=options.batch,
        context=options.context,
        heads=options.heads,
        kv_heads=options.kv_heads,
        head_size=options.head_size,
        block_size=options.block_size,
    )
    print(
        f"{shape}\n{freewheel.ops.cpu_isa()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads; milliseconds, medians of {options.repeats}"
    )
    print("dtype       freewheel gather+SDPA   faster  difference  one thread  speed-up")
    compared = [
        compare(shape, dtype, options.repeats)
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    ]
    faster, threaded = (min(column) for column in zip(*compared, strict=True))
    scales = threaded >= THREADED or torch.get_num_threads() == 1
    return 0 if faster >= options.check and (scales or not options.check) else 1


if __name__ == "__main__":
    sys.exit(main())
