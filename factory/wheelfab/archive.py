"""Zip archives of wheels: opened within bounds, checked member by member, written canonically."""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile, ZipInfo

from wheelfab.errors import FormatError
from wheelfab.inflate import pieces
from wheelfab.zipheaders import header_flaws

_CHUNK = 1 << 20
_END = b"PK\x05\x06"
_END_SIZE = 22
_FIRST = b"PK\x03\x04"
_ZIP_EPOCH = 315532800  # 1980-01-01, the earliest time that a zip archive can hold
_CONTROL = re.compile(r"[\\\x00-\x1f\x7f]")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError)


class FlawKind(StrEnum):
    """What can be wrong with a wheel; every kind has a test that provokes it."""

    NOT_A_ZIP = "not-a-zip"
    TRUNCATED = "truncated"
    STRAY_BYTES = "stray-bytes"
    OVER_LIMIT = "over-limit"
    BAD_PATH = "bad-path"
    DUPLICATE = "duplicate"
    LINK = "link"
    HEADER = "header"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    FILE_NAME = "file-name"
    DIST_INFO = "dist-info"
    METADATA = "metadata"
    WHEEL_FILE = "wheel-file"
    NAME = "name"
    VERSION = "version"
    TAG = "tag"
    RECORD = "record"
    RECORD_DUPLICATE = "record-duplicate"
    UNRECORDED = "unrecorded"
    ABSENT = "absent"
    HASH = "hash"
    HASH_FORM = "hash-form"
    SIZE = "size"
    LIBRARY_TAG = "library-tag"
    BUILD_RECORD = "build-record"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flaw:
    """One thing that is wrong with a wheel, and the member or field that shows it."""

    kind: FlawKind
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds on what a wheel may unpack to; bytes, but for ``members`` and ``ratio``."""

    members: int = 50_000
    member: int = 4 << 30
    total: int = 8 << 30
    text: int = 16 << 20  # METADATA, WHEEL, RECORD and the build record
    ratio: int = 200  # unpacked : packed, of members above ``ratio_from``
    ratio_from: int = 64 << 20


LIMITS = Limits()


@contextmanager
def open_archive(path: Path) -> Iterator[ZipFile]:
    """The zip archive in ``path``.

    Raises ``FormatError`` when the file is not a whole zip archive; ``what`` starts with
    ``truncated`` when it begins as one.
    """
    try:
        archive = ZipFile(path)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, ValueError) as error:
        raise FormatError(
            _why_not_zip(path, str(error)),
            where=str(path),
            next_step="build or download it again",
        ) from error
    with archive:
        yield archive


def layout_flaws(archive: ZipFile, size: int, limits: Limits = LIMITS) -> list[Flaw]:
    """What is wrong with the directory of ``archive`` (a file of ``size`` bytes), before reading.

    Paths that leave the target folder, names that come twice, links and devices, encrypted or
    oddly compressed members, sizes and ratios over ``limits``, bytes outside the archive.
    """
    members = archive.infolist()
    if len(members) > limits.members:
        return [_flaw(FlawKind.OVER_LIMIT, "", f"{len(members)} members, over {limits.members}")]
    flaws = [flaw for member in members for flaw in _member_flaws(member, limits)]
    for name, count in Counter(member.filename for member in members).items():
        if count > 1:
            flaws.append(_flaw(FlawKind.DUPLICATE, name, f"is in the archive {count} times"))
    flaws += _total_flaws(archive, size, limits)
    return flaws or [_flaw(FlawKind.HEADER, *flaw) for flaw in header_flaws(archive)]


def _member_flaws(member: ZipInfo, limits: Limits) -> Iterator[Flaw]:
    where = member.filename
    if reason := _bad_path(member):
        yield _flaw(FlawKind.BAD_PATH, where, reason)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if kind == stat.S_IFLNK else "neither a file nor a folder"
        yield _flaw(FlawKind.LINK, where, what)
    if member.flag_bits & 0x1:
        yield _flaw(FlawKind.UNREADABLE, where, "is encrypted")
    if member.compress_type not in _METHODS:
        yield _flaw(
            FlawKind.UNREADABLE,
            where,
            f"compression method {member.compress_type}, neither stored nor deflated",
        )
    if member.file_size > limits.member:
        what = f"unpacks to {member.file_size} bytes, over {limits.member}"
        yield _flaw(FlawKind.OVER_LIMIT, where, what)
    elif (
        member.file_size > limits.ratio_from
        and member.file_size > limits.ratio * member.compress_size
    ):
        what = f"unpacks to {member.file_size} bytes from {member.compress_size}"
        yield _flaw(FlawKind.OVER_LIMIT, where, f"{what}, more than 1:{limits.ratio}")


def _bad_path(member: ZipInfo) -> str:
    # ``orig_filename`` is what the archive says; ``filename`` is cut at a NUL byte
    name = member.orig_filename
    if not name or name.startswith("/") or name[1:2] == ":":
        return "is not a relative path"
    if _CONTROL.search(name):
        return "has a backslash or a control character in its name"
    if any(part in ("", ".", "..") for part in name.removesuffix("/").split("/")):
        return "has an empty, '.' or '..' component"
    return ""


def _total_flaws(archive: ZipFile, size: int, limits: Limits) -> Iterator[Flaw]:
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    if total > limits.total:
        yield _flaw(FlawKind.OVER_LIMIT, "", f"unpacks to {total} bytes, over {limits.total}")
    if sum(member.compress_size for member in members) > size:
        yield _flaw(FlawKind.OVER_LIMIT, "", "members overlap: their sum is over the file's size")
    if members and min(member.header_offset for member in members) > 0:
        yield _flaw(FlawKind.STRAY_BYTES, "", "bytes lie before the first member")
    file = archive.fp
    if file is not None:
        end = size - _END_SIZE - len(archive.comment)
        file.seek(max(end, 0))
        if file.read(len(_END)) != _END:
            yield _flaw(FlawKind.STRAY_BYTES, "", "bytes lie after the end of the archive")


def digest_member(archive: ZipFile, member: ZipInfo, algorithm: str = "sha256") -> bytes:
    """The digest of a member's bytes, streamed.

    Raises ``FormatError`` when the member cannot be unpacked or its checksum is wrong.
    """
    sha = hashlib.new(algorithm)
    for piece in pieces(archive, member):
        sha.update(piece)
    return sha.digest()


def read_member(archive: ZipFile, name: str, limit: int = LIMITS.text) -> bytes:
    """The bytes of member ``name``, at most ``limit`` of them; raises ``FormatError``."""
    member = archive.getinfo(name)
    if member.file_size > limit:
        raise FormatError(f"{member.file_size} bytes, over {limit}", where=name)
    try:
        with archive.open(member) as file:
            return file.read(limit)
    except _READ_ERRORS as error:
        raise FormatError(str(error) or "ends early", where=name) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class NewMember:
    """A member to write: bytes, or the member of another archive to copy."""

    name: str
    content: bytes | ZipInfo
    executable: bool = False


def write_archive(
    file: BinaryIO, members: Iterable[NewMember], epoch: int, source: ZipFile | None = None
) -> None:
    """Write ``members`` in the order given as an archive whose bytes depend on nothing else.

    One time for all (``epoch``, seconds; UTC), modes 644 and 755, deflate at zlib's own level.
    Equal bytes need an equal zlib. ``source`` is the archive of the members to copy.
    """
    when = time.gmtime(max(epoch, _ZIP_EPOCH))[:6]
    with ZipFile(file, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            info = ZipInfo(member.name, date_time=when)
            info.create_system = 3  # Unix, wherever this runs
            info.external_attr = (stat.S_IFREG | (0o755 if member.executable else 0o644)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            if isinstance(member.content, bytes):
                archive.writestr(info, member.content)
                continue
            if source is None:
                raise ValueError("members to copy need their source archive")
            info.file_size = member.content.file_size
            with source.open(member.content) as old, archive.open(info, "w") as new:
                shutil.copyfileobj(old, new, _CHUNK)


def _why_not_zip(path: Path, error: str) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        begins = file.read(len(_FIRST)) == _FIRST
    if begins:
        return f"truncated: the archive has no end; cut off after {size} bytes, or half written"
    return f"not a zip archive ({error}), {size} bytes"


def _flaw(kind: FlawKind, where: str, what: str) -> Flaw:
    return Flaw(kind=kind, where=where, what=what)
