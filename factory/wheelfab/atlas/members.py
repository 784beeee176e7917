"""The members of a wheel one by one, inflated as they come and stored nowhere."""

from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO
from zipfile import ZipFile

from wheelfab.archive import LIMITS, layout_flaws
from wheelfab.errors import FormatError

CHUNK = 1 << 20
Wanted = Callable[[str], bool]
_LOCAL = struct.Struct("<4s5H3I2H")
_FIRST, _CENTRAL, _DESCRIPTOR = b"PK\x03\x04", b"PK\x01\x02", b"PK\x07\x08"
_END, _LONGEST_END = b"PK\x05\x06", 22 + 0xFFFF  # with the longest comment
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8
_LONG = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A member on its way: its pieces must be taken before the next member is asked for."""

    name: str
    pieces: Iterator[bytes]


def ranged_members(file: IO[bytes], size: int, wanted: Wanted) -> Iterator[Part]:
    """The wanted members of an archive that can be read anywhere, CRC-32 checked.

    Raises ``FormatError`` when the archive or a member is not sound.
    """
    try:
        with ZipFile(file) as archive:
            flaws = layout_flaws(archive, size)
            if flaws:
                raise FormatError(str(flaws[0]), next_step="ask another index")
            for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
                if wanted(info.filename):
                    yield Part(name=info.filename, pieces=_unzip(archive, info))
    except zipfile.BadZipFile as error:
        raise FormatError(f"not a zip archive ({error})") from error


def _unzip(archive: ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(info) as file:
            while piece := file.read(CHUNK):
                yield piece
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise FormatError(str(error) or "ends early", where=info.filename) from error


class StreamedWheel:
    """An archive that comes in one stream: members in the order of the file, and its SHA-256."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._buffer = b""
        self._sha = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """The digest (hex) of what has come."""
        return self._sha.hexdigest()

    def members(self, wanted: Wanted) -> Iterator[Part]:
        """The wanted members, CRC-32 checked; the stream is read to its end.

        Raises ``FormatError`` for anything but a plain archive that begins with its first member.
        """
        while (signature := self._read(4)) == _FIRST:
            header = _LOCAL.unpack(signature + self._read(_LOCAL.size - 4))
            _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = header
            name = self._read(name_size).decode("utf-8", "replace")
            extra = self._read(extra_size)
            if flags & _ENCRYPTED or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FormatError("encrypted or oddly compressed", where=name)
            if flags & _SIZES_FOLLOW and method == zipfile.ZIP_STORED and name[-1:] != "/":
                raise FormatError("a stored member of unknown size", where=name)
            long = _long_sizes(extra) if _LONG in (packed, size) else None
            packed = long[1] if long else packed
            follows = bool(flags & _SIZES_FOLLOW)
            if method == zipfile.ZIP_STORED or (not follows and not wanted(name)):
                raw = self._exactly(packed)
                pieces = raw if method == zipfile.ZIP_STORED else _nothing(raw)
                pieces = _checked(pieces, crc, name) if method == zipfile.ZIP_STORED else pieces
            else:
                pieces = self._inflated(name, None if follows else crc, long=_is_long(extra))
            if wanted(name):
                yield Part(name=name, pieces=pieces)
            for _ in pieces:
                pass
        if signature != _CENTRAL:
            raise FormatError("not a zip archive that can be read from its beginning")
        while self._more():
            self._buffer = self._buffer[-_LONGEST_END:]
        if _END not in self._buffer:
            raise FormatError("truncated: the archive has no end")

    def _more(self) -> bool:
        piece = next(self._pieces, b"")
        self._sha.update(piece)
        self.size += len(piece)
        self._buffer += piece
        return bool(piece)

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self._more():
                raise FormatError("truncated: the archive has no end")
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._read(min(size, max(1, len(self._buffer))))
            size -= len(piece)
            yield piece

    def _inflated(self, name: str, crc: int | None, *, long: bool) -> Iterator[bytes]:
        engine, seen, total = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
        while not engine.eof:
            if not self._buffer and not self._more():
                raise FormatError("truncated: the archive has no end", where=name)
            data, self._buffer = self._buffer, b""
            while data and not engine.eof:
                try:
                    piece = engine.decompress(data, CHUNK)
                except zlib.error as error:
                    raise FormatError(str(error), where=name) from error
                data = engine.unconsumed_tail
                seen, total = zlib.crc32(piece, seen), total + len(piece)
                if total > LIMITS.member:
                    raise FormatError(f"unpacks to over {LIMITS.member} bytes", where=name)
                yield piece
        self._buffer = engine.unused_data + self._buffer
        if crc is None:
            first = self._read(4)
            crc = struct.unpack("<I", self._read(4) if first == _DESCRIPTOR else first)[0]
            self._read(16 if long else 8)
        if seen != crc:
            raise FormatError("its CRC-32 is another", where=name)


def _is_long(extra: bytes) -> bool:
    return _long_field(extra) is not None


def _long_field(extra: bytes) -> bytes | None:
    """The field of ZIP64 sizes, if there is one."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == 1:
            return extra[4 : 4 + size]
        extra = extra[4 + size :]
    return None


def _long_sizes(extra: bytes) -> tuple[int, int] | None:
    field = _long_field(extra)
    return struct.unpack_from("<QQ", field) if field and len(field) >= 16 else None


def _nothing(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for _ in pieces:
        yield b""


def _checked(pieces: Iterator[bytes], crc: int, name: str) -> Iterator[bytes]:
    seen = 0
    for piece in pieces:
        seen = zlib.crc32(piece, seen)
        yield piece
    if seen != crc:
        raise FormatError("its CRC-32 is another", where=name)
