"""Facts of two wheels that should be one: which members differ, and in what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from wheelfab.archive import layout_flaws, open_archive, read_member
from wheelfab.errors import FormatError

_LARGEST = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A member of both wheels whose content, time or mode differs. The bytes only if they do."""

    name: str
    first: bytes = b""
    second: bytes = b""
    times: tuple[str, str] | None = None
    modes: tuple[str, str] | None = None

    @property
    def same_content(self) -> bool:
        """Whether only the archive's words about it differ."""
        return self.first == self.second


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """How two wheels differ; ``packed`` where all members agree and the archives do not."""

    members: tuple[Member, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    reordered: bool
    packed: bool


def compare_wheels(first: Path, second: Path) -> Difference:
    """The facts; raises ``FormatError`` where one is no sound archive."""
    with open_archive(first) as one, open_archive(second) as other:
        for path, archive in ((first, one), (second, other)):
            if flaws := layout_flaws(archive, path.stat().st_size):
                raise FormatError(str(flaws[0]), where=str(path))
        ours, theirs = _members(one), _members(other)
        common = [name for name in ours if name in theirs]
        members = tuple(
            found
            for name in common
            if (found := _compare(one, ours[name], other, theirs[name])) is not None
        )
        reordered = common != [name for name in theirs if name in ours]
        only_first = tuple(name for name in ours if name not in theirs)
        only_second = tuple(name for name in theirs if name not in ours)
    return Difference(
        members=members,
        only_first=only_first,
        only_second=only_second,
        reordered=reordered,
        packed=not (members or only_first or only_second or reordered),
    )


def _members(archive: ZipFile) -> Mapping[str, ZipInfo]:
    return {info.filename: info for info in archive.infolist() if not info.is_dir()}


def _compare(one: ZipFile, first: ZipInfo, other: ZipFile, second: ZipInfo) -> Member | None:
    times = (_time(first), _time(second))
    modes = (_mode(first), _mode(second))
    content = (b"", b"")
    if (first.CRC, first.file_size) != (second.CRC, second.file_size):
        content = (
            read_member(one, first.filename, _LARGEST),
            read_member(other, second.filename, _LARGEST),
        )
    if content == (b"", b"") and times[0] == times[1] and modes[0] == modes[1]:
        return None
    return Member(
        name=first.filename,
        first=content[0],
        second=content[1],
        times=times if times[0] != times[1] else None,
        modes=modes if modes[0] != modes[1] else None,
    )


def _time(info: ZipInfo) -> str:
    year, month, day, hour, minute, second = info.date_time
    return f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"


def _mode(info: ZipInfo) -> str:
    return f"{info.external_attr >> 16 & 0o7777:o}"
