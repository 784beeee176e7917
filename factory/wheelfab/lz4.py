"""Expands LZ4 blocks, the way fatbins store PTX; enough of the format to need no dependency."""

from __future__ import annotations

from wheelfab.errors import FormatError

_SHORTEST_MATCH = 4


def decompress_block(data: bytes, size: int, *, where: str) -> bytes:
    """Expand one LZ4 block to exactly ``size`` bytes.

    A block is a row of sequences: a token, literals, and a match copied from what was written.
    Raises ``FormatError`` when it is cut short, reaches before its start or has another size.
    """
    out = bytearray()
    at = 0
    try:
        while at < len(data):
            token = data[at]
            length, at = _length(data, token >> 4, at + 1)
            if length > len(data) - at or len(out) + length > size:
                raise FormatError("an LZ4 block with too many literals", where=where)
            out += data[at : at + length]
            at += length
            if at == len(data):
                break
            distance = data[at] | data[at + 1] << 8
            length, at = _length(data, token & 15, at + 2)
            _copy(out, distance, length + _SHORTEST_MATCH, size, where)
    except IndexError as error:
        raise FormatError("an LZ4 block cut short", where=where) from error
    if len(out) != size:
        raise FormatError(f"an LZ4 block of {len(out)} bytes, not {size}", where=where)
    return bytes(out)


def _length(data: bytes, nibble: int, at: int) -> tuple[int, int]:
    """A length that starts in a token: 15 means that more bytes follow, each 255 but the last."""
    length = nibble
    if nibble == 15:
        while True:
            byte = data[at]
            at += 1
            length += byte
            if byte != 255:
                break
    return length, at


def _copy(out: bytearray, distance: int, length: int, size: int, where: str) -> None:
    """Append ``length`` bytes from ``distance`` back; they may overlap what is being written."""
    if not 0 < distance <= len(out) or len(out) + length > size:
        raise FormatError("an LZ4 match outside the block", where=where)
    start = len(out) - distance
    if distance >= length:
        out += out[start : start + length]
        return
    pattern = bytes(out[start:])
    out += (pattern * (length // distance + 1))[:length]
