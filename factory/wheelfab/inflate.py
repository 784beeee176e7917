"""A member of a zip archive unpacked to its very end: nothing may hide behind it.

zipfile stops where the compressed stream says that it ends; what lies there until the next member
would be in the archive and in no file. ISA-L inflates in half of zlib's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, cast
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from isal import isal_zlib

from wheelfab.errors import FormatError
from wheelfab.zipheaders import data_start

_CHUNK = 1 << 20
# Its stub says that this is an exception; it is the class of one.
_BROKEN = cast("type[Exception]", isal_zlib.error)


def pieces(archive: ZipFile, member: ZipInfo) -> Iterator[bytes]:
    """The bytes of a stored or deflated member, in pieces of at most 1 MiB.

    Raises ``FormatError`` where it cannot be unpacked, has another checksum or size than the list
    says, or ends before its packed bytes do.
    """
    file = archive.fp
    if file is None:
        raise ValueError("the archive is closed")
    stored = member.compress_type == ZIP_STORED
    size = crc = 0
    try:
        start = data_start(file, member)
        for piece in (_stored if stored else _inflated)(file, start, member.compress_size):
            size += len(piece)
            if size > member.file_size:
                break
            crc = isal_zlib.crc32(piece, crc)
            yield piece
    except (_BROKEN, _BadError, OSError) as error:
        raise FormatError(str(error), where=member.filename) from error
    if size != member.file_size:
        more = "more than" if size > member.file_size else f"{size}, not"
        raise FormatError(f"unpacks to {more} {member.file_size} bytes", where=member.filename)
    if crc != member.CRC:
        raise FormatError("has another checksum than the list says", where=member.filename)


class _BadError(Exception):
    pass


def _stored(file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    for at in range(start, start + size, _CHUNK):
        yield _read(file, at, min(_CHUNK, start + size - at))


def _inflated(file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    unpacker = isal_zlib.decompressobj(-isal_zlib.MAX_WBITS)
    at, end, rest = start, start + size, b""
    while not unpacker.eof:
        if not rest:
            rest = _read(file, at, min(_CHUNK, end - at))
            at += len(rest)
        piece = unpacker.decompress(rest, _CHUNK)
        rest = unpacker.unconsumed_tail
        if piece:
            yield piece
        elif not rest and at == end and not unpacker.eof:
            raise _BadError("ends early")
    if unpacker.unused_data or at < end:
        raise _BadError("has bytes behind its end, in no file")


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    file.seek(at)
    data = file.read(size)
    if len(data) < size:
        raise _BadError("ends early")
    return data
