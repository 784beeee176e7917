"""Expands LZ4 blocks, the way fatbins store PTX and cubins."""

from __future__ import annotations

import lz4.block

from wheelfab.errors import FormatError


def decompress_block(data: bytes, size: int, *, where: str) -> bytes:
    """Expand one LZ4 block to exactly ``size`` bytes.

    Raises ``FormatError`` when it is cut short, reaches before its start or has another size.
    """
    try:
        out = lz4.block.decompress(data, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError) as error:
        raise FormatError(f"a broken LZ4 block: {error}", where=where) from error
    if len(out) != size:
        raise FormatError(f"an LZ4 block of {len(out)} bytes, not {size}", where=where)
    return bytes(out)
