"""The atlas: releases, and which library of which release exports a symbol; one file of data.

The file is a line of magic, the length of a header, the header (JSON, canonical), and blocks. A
block holds a run of the sorted symbols, each with the number of its pattern: which libraries have
it in which releases. Symbols are stored once for all releases, patterns once for all symbols, and
blocks are compressed on their own, so that a question opens those few that it asks about.
"""

from __future__ import annotations

import json
import lzma
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from packaging.version import Version

from wheelfab.atlas.release import Checked, Library, Release
from wheelfab.errors import FormatError
from wheelfab.records import canonical_json, to_plain, write_bytes

SCHEMA = 1
OWN = Path(__file__).with_name("linux-x86_64.atlas")
_MAGIC = b"wheelfab atlas\n"
_LENGTH = struct.Struct("<I")
_PER_BLOCK = 4096
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 20}]
_MOST_MEMORY = 64 << 20
_MOST_RAW = 16 << 20
_MOST_HEADER = 4 << 20

Pattern = tuple[frozenset[str], ...]  # by release: the libraries that have the symbol


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    first: str
    offset: int
    size: int
    raw: int


class Atlas:
    """Releases of torch, oldest first, and their symbols."""

    def __init__(
        self,
        releases: tuple[Release, ...],
        platform: str,
        blocks: tuple[_Block, ...],
        patterns: tuple[tuple[str, ...], tuple[str, ...]],
        data: bytes,
    ) -> None:
        self.releases = releases
        self.platform = platform
        self._blocks = blocks
        self._patterns, self._libraries = patterns
        self._data = data
        self._open: dict[int, dict[str, int]] = {}

    @cached_property
    def _firsts(self) -> list[str]:
        return [block.first for block in self._blocks]

    def where(self, names: Iterable[str]) -> dict[str, Pattern]:
        """For each of ``names``, the libraries that export it, release by release."""
        nowhere: Pattern = (frozenset(),) * len(self.releases)
        found: dict[str, Pattern] = {}
        for name in names:
            number = bisect_right(self._firsts, name) - 1
            pattern = self._block(number).get(name) if number >= 0 else None
            found[name] = nowhere if pattern is None else self._pattern(pattern)
        return found

    def symbols(self) -> dict[Version, dict[str, set[str]]]:
        """All symbols, by release and library: what the atlas was made from."""
        found: dict[Version, dict[str, set[str]]] = {
            release.version: {library.name: set() for library in release.libraries}
            for release in self.releases
        }
        for number in range(len(self._blocks)):
            for name, pattern in self._block(number).items():
                for release, libraries in zip(self.releases, self._pattern(pattern), strict=True):
                    for library in libraries:
                        found[release.version][library].add(name)
        return found

    def _pattern(self, number: int) -> Pattern:
        return tuple(
            frozenset(name for bit, name in enumerate(self._libraries) if mask >> bit & 1)
            for mask in _masks(self._patterns[number], len(self.releases))
        )

    def _block(self, number: int) -> dict[str, int]:
        if number not in self._open:
            block = self._blocks[number]
            packed = self._data[block.offset : block.offset + block.size]
            self._open[number] = _unpack_block(packed, block.raw, len(self._patterns))
        return self._open[number]


def pack_atlas(
    platform: str, taken: Iterable[tuple[Release, Mapping[str, Iterable[str]]]]
) -> bytes:
    """The file of an atlas: the same releases give the same bytes, in whatever order they come."""
    chosen = sorted(taken, key=lambda item: item[0].version)
    libraries = sorted({name for _, symbols in chosen for name in symbols})
    bits = {name: 1 << bit for bit, name in enumerate(libraries)}
    masks: dict[str, list[int]] = {}
    for number, (_, symbols) in enumerate(chosen):
        for library, names in symbols.items():
            for name in names:
                masks.setdefault(name, [0] * len(chosen))[number] |= bits[library]
    patterns = sorted({tuple(mask) for mask in masks.values()})
    numbers = {pattern: number for number, pattern in enumerate(patterns)}
    names = sorted(masks)
    blocks: list[dict[str, Any]] = []
    body = bytearray()
    for start in range(0, len(names), _PER_BLOCK):
        run = names[start : start + _PER_BLOCK]
        raw = _raw_block(run, [numbers[tuple(masks[name])] for name in run])
        packed = lzma.compress(raw, format=lzma.FORMAT_XZ, filters=_FILTERS)
        blocks.append({"first": run[0], "size": len(packed), "raw": len(raw)})
        body += packed
    header = {
        "schema": SCHEMA,
        "platform": platform,
        "releases": _plain_releases([release for release, _ in chosen]),
        "libraries": libraries,
        "patterns": [_runs(pattern) for pattern in patterns],
        "blocks": blocks,
        "symbols": len(names),
    }
    head = lzma.compress(canonical_json(header).encode(), format=lzma.FORMAT_XZ, filters=_FILTERS)
    return _MAGIC + _LENGTH.pack(len(head)) + head + bytes(body)


def write_atlas(path: Path, data: bytes) -> None:
    """Write the file of an atlas, whole or not at all."""
    unpack_atlas(data, where=str(path))
    write_bytes(path, data)


def unpack_atlas(data: bytes, *, where: str) -> Atlas:
    """The atlas in the bytes of a file; blocks stay packed. Raises ``FormatError``."""
    try:
        if not data.startswith(_MAGIC):
            raise ValueError("it does not begin as one")  # noqa: TRY301
        start = len(_MAGIC) + _LENGTH.size
        (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
        header = json.loads(_expand(data[start : start + length], _MOST_HEADER))
        if header["schema"] != SCHEMA:
            raise ValueError(f"schema {header['schema']}, not {SCHEMA}")  # noqa: TRY301
        offset, blocks = start + length, []
        for item in header["blocks"]:
            blocks.append(_Block(offset=offset, **item))
            offset += int(item["size"])
        if offset != len(data):
            raise ValueError(f"{len(data)} bytes, not {offset}")  # noqa: TRY301
        releases = _releases(header["releases"])
        patterns = tuple(map(str, header["patterns"]))
        return Atlas(
            releases,
            str(header["platform"]),
            tuple(blocks),
            (patterns, tuple(header["libraries"])),
            data,
        )
    except (ValueError, TypeError, KeyError, struct.error, lzma.LZMAError) as error:
        raise FormatError(
            f"not an atlas ({error})", where=where, next_step="make it again: wheelfab atlas update"
        ) from error


@cache
def read_atlas(path: Path | None = None) -> Atlas:
    """The atlas in ``path``, or the one that wheelfab comes with; raises ``FormatError``."""
    chosen = path or OWN
    if not chosen.is_file():
        raise FormatError(
            "there is no atlas", where=str(chosen), next_step="make one: wheelfab atlas update"
        )
    return unpack_atlas(chosen.read_bytes(), where=str(chosen))


def _raw_block(names: Sequence[str], patterns: Sequence[int]) -> bytes:
    return "\n".join(names).encode() + b"\0" + struct.pack(f"<{len(patterns)}I", *patterns)


def _unpack_block(packed: bytes, size: int, patterns: int) -> dict[str, int]:
    """Symbols and their patterns; raises ``FormatError``."""
    try:
        raw = _expand(packed, min(size, _MOST_RAW))
        text, _, tail = raw.partition(b"\0")
        names = text.decode().split("\n")
        numbers = struct.unpack(f"<{len(names)}I", tail)
        if len(raw) != size or max(numbers) >= patterns:
            raise ValueError("its sizes do not fit")  # noqa: TRY301
    except (ValueError, struct.error, lzma.LZMAError) as error:
        raise FormatError(f"a block of symbols is damaged ({error})", where="the atlas") from error
    return dict(zip(names, numbers, strict=True))


def _expand(packed: bytes, most: int) -> bytes:
    engine = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
    raw = engine.decompress(packed, max_length=most)
    if not engine.eof or engine.unused_data:
        raise ValueError("a packed part is cut short or over its bounds")
    return raw


def _runs(masks: Sequence[int]) -> str:
    """``0*3,6*2``: three releases without a symbol, then two where libraries 1 and 2 have it."""
    runs: list[list[int]] = []
    for mask in masks:
        if runs and runs[-1][0] == mask:
            runs[-1][1] += 1
        else:
            runs.append([mask, 1])
    return ",".join(f"{mask:x}*{count}" for mask, count in runs)


def _masks(runs: str, count: int) -> tuple[int, ...]:
    masks = tuple(
        int(mask, 16)
        for mask, _, times in (run.partition("*") for run in runs.split(","))
        for _ in range(min(int(times), count))
    )
    if len(masks) != count:
        raise FormatError("a pattern for another number of releases", where="the atlas")
    return masks


def plain_release(release: Release) -> dict[str, Any]:
    """A record of a release in JSON's own types."""
    plain: dict[str, Any] = to_plain(release)
    return plain


def read_release(record: Mapping[str, Any]) -> Release:
    """The release in a record; raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    values: dict[str, Any] = dict(record)
    for name in ("pythons", "archs", "notes", "dispatch"):
        values[name] = tuple(values[name])
    values["libraries"] = tuple(
        Library(name=item["name"], needed=tuple(item["needed"]), symbols=item["symbols"])
        for item in values["libraries"]
    )
    values["version"] = Version(values["version"])
    values["checked"] = Checked(values["checked"])
    return Release(**values)


def _plain_releases(releases: Sequence[Release]) -> dict[str, Any]:
    """Records of releases; the long lists of dispatch keys once each."""
    layouts = sorted({release.dispatch for release in releases})
    records = [
        {**plain_release(release), "dispatch": layouts.index(release.dispatch)}
        for release in releases
    ]
    return {"dispatch": layouts, "records": records}


def _releases(plain: Mapping[str, Any]) -> tuple[Release, ...]:
    return tuple(
        read_release({**record, "dispatch": plain["dispatch"][record["dispatch"]]})
        for record in plain["records"]
    )
