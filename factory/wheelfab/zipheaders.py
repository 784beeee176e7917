"""The two directories of a zip archive: each member's own header against the list at the end.

Python reads the list, others read the headers as they come. Where the two differ, or bytes lie
between members, two programs unpack two different archives from one file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import IO
from zipfile import ZipFile, ZipInfo

_LOCAL = struct.Struct("<4s2B4HL2L2H")
_SIGNATURE = b"PK\x03\x04"
_DESCRIPTOR_SIGNATURE = b"PK\x07\x08"
_DESCRIBED = 0x08  # checksum and sizes follow the data
_BIG = 0xFFFFFFFF  # the size stands in the ZIP64 field
_ZIP64 = 1
_ENCODING = 0x0800


def header_flaws(archive: ZipFile) -> Iterator[tuple[str, str]]:
    """Where the headers and the list differ, or something lies between: member and what."""
    file = archive.fp
    if file is None:
        return
    at = 0
    for member in sorted(archive.infolist(), key=lambda one: one.header_offset):
        if member.header_offset > at:
            yield member.filename, f"{member.header_offset - at} bytes lie before it, in no member"
        elif member.header_offset < at:
            yield member.filename, "overlaps the member before it"
        end, reason = _read(file, member)
        if reason:
            yield member.filename, reason
            return
        at = end
    if at != archive.start_dir:
        yield "", "bytes lie between the last member and the list of members"


def data_start(file: IO[bytes], member: ZipInfo) -> int:
    """Where a member's packed bytes begin, by its own header."""
    head = _head(file, member)
    if len(head) < _LOCAL.size:
        return member.header_offset
    name, extra = _LOCAL.unpack(head)[-2:]
    return member.header_offset + _LOCAL.size + int(name) + int(extra)


def _head(file: IO[bytes], member: ZipInfo) -> bytes:
    """A member's own header; nothing where the list points outside the file."""
    if not 0 <= member.header_offset < file.seek(0, os.SEEK_END):
        return b""
    file.seek(member.header_offset)
    return file.read(_LOCAL.size)


def _read(file: IO[bytes], member: ZipInfo) -> tuple[int, str]:
    """Where a member ends, and in what its header differs from the list."""
    head = _head(file, member)
    if len(head) < _LOCAL.size or head[:4] != _SIGNATURE:
        return 0, "has no header where the list says"
    fields = _LOCAL.unpack(head)
    flags, method, crc, packed, size, name, extra = (*fields[3:5], *fields[7:])
    if file.read(name) != _raw_name(member):
        return 0, "has another name in its own header"
    more = file.read(extra)
    if flags != member.flag_bits or method != member.compress_type:
        return 0, "has other flags or another method in its own header"
    end = member.header_offset + _LOCAL.size + name + extra + member.compress_size
    if flags & _DESCRIBED:
        return _after_descriptor(file, member, end)
    sizes = _zip64(more) if _BIG in (packed, size) else (size, packed)
    if (crc, *sizes) != (member.CRC, member.file_size, member.compress_size):
        return 0, "has another checksum or size in its own header"
    return end, ""


def _raw_name(member: ZipInfo) -> bytes:
    encoding = "utf-8" if member.flag_bits & _ENCODING else "cp437"
    return member.orig_filename.encode(encoding, "replace")


def _after_descriptor(file: IO[bytes], member: ZipInfo, at: int) -> tuple[int, str]:
    """The end of the checksum and sizes that follow the data, with or without a signature."""
    file.seek(at)
    data = file.read(24)
    for lead in (_DESCRIPTOR_SIGNATURE, b""):
        for form in ("<LLL", "<LQQ"):
            size = struct.calcsize(form)
            body = data[len(lead) : len(lead) + size]
            if not data.startswith(lead) or len(body) < size:
                continue
            if struct.unpack(form, body) == (member.CRC, member.compress_size, member.file_size):
                return at + len(lead) + size, ""
    return 0, "has another checksum or size after its data"


def _zip64(extra: bytes) -> tuple[int, int]:
    """Size and packed size of the ZIP64 field of a header's extra bytes; zeros without one."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == _ZIP64 and size >= 16 and at + 20 <= len(extra):
            found: tuple[int, int] = struct.unpack_from("<QQ", extra, at + 4)
            return found
        at += 4 + size
    return 0, 0
