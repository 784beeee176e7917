"""LZ4 blocks are expanded as the format says, and to nothing else than the size that was told."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.errors import FormatError
from wheelfab.lz4 import decompress_block

Sequences = list[tuple[bytes, int, int]]


def length_bytes(length: int) -> bytes:
    """What follows a token's 15."""
    rest = length - 15
    return b"" if rest < 0 else b"\xff" * (rest // 255) + bytes([rest % 255])


def encode(sequences: Sequences, last: bytes) -> tuple[bytes, bytes]:
    """The block and what it expands to, byte by byte; a distance is brought into reach."""
    block, out = b"", b""
    for literals, reach, length in sequences:
        out += literals
        distance = reach % min(len(out), 65535) + 1
        extra = length - 4
        block += bytes([min(len(literals), 15) << 4 | min(extra, 15)])
        block += length_bytes(len(literals)) + literals + distance.to_bytes(2, "little")
        block += length_bytes(extra)
        for _ in range(length):
            out += out[len(out) - distance :][:1]
    block += bytes([min(len(last), 15) << 4]) + length_bytes(len(last)) + last
    return block, out + last


SEQUENCES = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), st.integers(0, 70000), st.integers(4, 600)),
    max_size=8,
)


# The format ends a block with literals: the last match begins 12 bytes before the end or sooner.
@given(sequences=SEQUENCES, last=st.binary(min_size=12, max_size=600))
def test_a_block_expands_to_what_was_packed(sequences: Sequences, last: bytes) -> None:
    block, expected = encode(sequences, last)
    assert decompress_block(block, len(expected), where="x") == expected


def test_a_match_may_overlap_what_it_writes() -> None:
    block = b"\x2fab\x02\x00\x05\xc0" + b"c" * 12
    assert decompress_block(block, 2 + 24 + 12, where="x") == b"ab" * 13 + b"c" * 12


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (b"\x30abc", 2),
        (b"\x30ab", 3),
        (b"\x20ab", 3),
        (b"\x10a\x02\x00", 9),
        (b"\x10a\x00\x00", 9),
        (b"\x1fa\x01\x00\xff\xff\xff\xff\x00", 64),
        (b"\x10a\x01", 9),
        (b"\xf0", 99),
        (b"", 1),
    ],
)
def test_a_broken_block_is_refused(block: bytes, size: int) -> None:
    with pytest.raises(FormatError, match="LZ4 block"):
        decompress_block(block, size, where="x")


@given(block=st.binary(max_size=200), size=st.integers(0, 5000))
def test_no_bytes_give_another_error_or_another_size(block: bytes, size: int) -> None:
    with suppress(FormatError):
        assert len(decompress_block(block, size, where="x")) == size
