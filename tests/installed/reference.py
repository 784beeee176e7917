"""Float64 references of every operation, and the rule by which results are judged."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def judge(ours: torch.Tensor, torchs: torch.Tensor, exact: torch.Tensor) -> None:
    """Our greatest error is at most twice that of torch's own operation, or 2 ulp of the output.

    ``exact`` is float64; ``ours`` and ``torchs`` have the dtype under test.
    """
    assert ours.dtype == torchs.dtype
    assert ours.shape == exact.shape
    if exact.numel() == 0:
        return
    error = (ours.double() - exact).abs().max().item()
    allowed = 2 * max((torchs.double() - exact).abs().max().item(), ulp(exact, ours.dtype))
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"


def ulp(values: torch.Tensor, dtype: torch.dtype) -> float:
    """The spacing of ``dtype`` at the greatest magnitude in ``values``."""
    _, exponent = torch.frexp(values.abs().max())
    return float(2.0 ** (int(exponent) - 1) * torch.finfo(dtype).eps)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """In float64."""
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """In float64."""
    gate, up = x.double().chunk(2, -1)
    return gate / (1 + torch.exp(-gate)) * up


def rotate(
    x: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, neox: bool
) -> torch.Tensor:
    """In the wider of ``x``'s and ``cos_sin``'s dtype; ``x`` is [tokens, heads, head_size]."""
    half = cos_sin.shape[1] // 2
    at = cos_sin[positions].unsqueeze(1)
    cos, sin = at[..., :half], at[..., half:]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if neox:
        a, b = turned[..., :half], turned[..., half:]
        pairs = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    else:
        a, b = turned[..., ::2], turned[..., 1::2]
        pairs = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    return torch.cat((pairs, rest.to(pairs.dtype)), -1)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A mixed batch over a paged cache; whatever no query may read is NaN."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor
    scale: float
    window: int

    def tensors(self) -> Tensors:
        """In the order of the operator, without ``out``."""
        return (
            self.query,
            self.key_cache,
            self.value_cache,
            self.block_table,
            self.seq_lens,
            self.query_start_loc,
        )

    def sequence(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query [heads, n, d], keys and values [heads, length, d], and the mask [n, length]."""
        first, last = (int(i) for i in self.query_start_loc[index : index + 2])
        length, count = int(self.seq_lens[index]), last - first
        blocks = self.block_table[index, : -(-length // self.key_cache.shape[1])].long()
        blocks = blocks.clamp(max=self.key_cache.shape[0] - 1)  # before the window: any number
        group = self.query.shape[1] // self.key_cache.shape[2]
        keys, values = (
            cache[blocks].flatten(0, 1)[:length].transpose(0, 1).repeat_interleave(group, 0)
            for cache in (self.key_cache, self.value_cache)
        )
        at = torch.arange(length - count, length).unsqueeze(1)
        key = torch.arange(length)
        mask = key <= at
        if self.window > 0:
            mask &= key > at - self.window
        return self.query[first:last].transpose(0, 1), keys, values, mask


def paged_attention(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64, and by torch's own attention in the batch's dtype; [tokens, heads, d] both."""
    exact = torch.zeros(batch.query.shape, dtype=torch.float64)
    torchs = torch.zeros_like(batch.query)
    for index in range(batch.seq_lens.shape[0]):
        first, last = (int(i) for i in batch.query_start_loc[index : index + 2])
        if first == last:
            continue
        query, keys, values, mask = batch.sequence(index)
        seen = mask.any(0)  # what a window leaves out is NaN
        keys, values, mask = keys[:, seen], values[:, seen], mask[:, seen]
        scores = query.double() @ keys.double().transpose(1, 2) * batch.scale
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        exact[first:last] = (weights @ values.double()).transpose(0, 1)
        torchs[first:last] = torch.nn.functional.scaled_dot_product_attention(
            query.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), mask, scale=batch.scale
        )[0].transpose(0, 1)
    return exact, torchs


def make_batch(
    dtype: torch.dtype,
    *,
    lengths: tuple[tuple[int, int], ...],
    heads: int = 4,
    kv_heads: int = 2,
    head_size: int = 64,
    block_size: int = 16,
    window: int = 0,
) -> Batch:
    """A random batch; ``lengths`` holds (tokens in the cache, of them query tokens) a sequence."""
    torch.manual_seed(len(lengths) * 1000 + heads * 100 + head_size + block_size + window)
    needed = [-(-length // block_size) for length, _ in lengths]
    blocks = sum(needed) + 3
    order = iter(torch.randperm(blocks).tolist())
    table = torch.full((len(lengths), max(needed, default=0) + 2), blocks + 7, dtype=torch.int32)
    caches = [
        torch.full((blocks, block_size, kv_heads, head_size), torch.nan, dtype=dtype)
        for _ in range(2)
    ]
    for sequence, (length, count) in enumerate(lengths):
        least = max(0, length - count + 1 - window) if window > 0 else 0
        if count == 0:
            continue
        for index in range(least // block_size, needed[sequence]):
            block = next(order)
            table[sequence, index] = block
            begin, end = (
                max(0, least - index * block_size),
                min(block_size, length - index * block_size),
            )
            for cache in caches:
                cache[block, begin:end] = torch.randn(end - begin, kv_heads, head_size).to(dtype)
    counts = torch.tensor([0, *(count for _, count in lengths)])
    tokens = int(counts.sum())
    return Batch(
        query=torch.randn(tokens, heads, head_size).to(dtype),
        key_cache=caches[0],
        value_cache=caches[1],
        block_table=table,
        seq_lens=torch.tensor([length for length, _ in lengths], dtype=torch.int32),
        query_start_loc=counts.cumsum(0).to(torch.int32),
        scale=head_size**-0.5,
        window=window,
    )
