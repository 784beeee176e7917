"""Members are unpacked to the last packed byte, as zipfile does and a little more strictly."""

from __future__ import annotations

import io
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.archive import layout_flaws
from wheelfab.errors import FormatError
from wheelfab.inflate import pieces

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def packed(content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of one member, ``a``."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("a", content)
    return file.getvalue()


def unpacked(data: bytes) -> bytes:
    """The bytes of member ``a``."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return b"".join(pieces(archive, archive.getinfo("a")))


def with_tail(content: bytes, tail: bytes) -> bytes:
    """An archive whose member has bytes behind the end of its compressed stream."""
    packer = zlib.compressobj(wbits=-15)
    stream = packer.compress(content) + packer.flush() + tail
    data = packed(stream, zipfile.ZIP_STORED)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        old = archive.getinfo("a")
    crc = zlib.crc32(content).to_bytes(4, "little")
    data = data.replace(old.CRC.to_bytes(4, "little"), crc)
    sizes = len(stream).to_bytes(4, "little") * 2
    data = data.replace(sizes, sizes[:4] + len(content).to_bytes(4, "little"))
    local, listed = bytearray(data), data.index(b"PK\x01\x02")
    local[8] = local[listed + 10] = zipfile.ZIP_DEFLATED
    return bytes(local)


@given(st.binary(max_size=5000), st.sampled_from(METHODS))
def test_it_unpacks_what_was_packed(content: bytes, method: int) -> None:
    assert unpacked(packed(content, method)) == content


@pytest.mark.parametrize("method", METHODS)
def test_pieces_are_bounded(method: int) -> None:
    with zipfile.ZipFile(io.BytesIO(packed(bytes(5 << 20), method))) as archive:
        sizes = [len(piece) for piece in pieces(archive, archive.getinfo("a"))]
    assert sum(sizes) == 5 << 20
    assert max(sizes) <= 1 << 20


def test_bytes_behind_the_end_are_found_where_zipfile_finds_none() -> None:
    data = with_tail(b"content" * 100, b"hidden")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert layout_flaws(archive, len(data)) == []
    with pytest.raises(FormatError, match="bytes behind its end"):
        unpacked(data)
    assert unpacked(with_tail(b"content" * 100, b"")) == b"content" * 100


@pytest.mark.parametrize("method", METHODS)
def test_another_checksum(method: int) -> None:
    data = packed(b"content", method)
    crc = zlib.crc32(b"content").to_bytes(4, "little")
    with pytest.raises(FormatError, match="another checksum than the list says"):
        unpacked(data.replace(crc, bytes(4)))


def test_another_size() -> None:
    data = packed(b"content" * 9)
    shorter, longer = (size.to_bytes(4, "little") for size in (62, 64))
    right = (63).to_bytes(4, "little")
    with pytest.raises(FormatError, match="more than 62 bytes"):
        unpacked(data.replace(right, shorter))
    with pytest.raises(FormatError, match="unpacks to 63, not 64 bytes"):
        unpacked(data.replace(right, longer))


def test_a_stream_that_ends_early() -> None:
    packer = zlib.compressobj(wbits=-15)
    half = packer.compress(bytes(range(256)) * 99) + packer.flush(zlib.Z_SYNC_FLUSH)
    data = bytearray(packed(half, zipfile.ZIP_STORED))
    data[8] = data[data.index(b"PK\x01\x02") + 10] = zipfile.ZIP_DEFLATED
    with pytest.raises(FormatError, match=r"ends early|more than"):
        unpacked(bytes(data))
