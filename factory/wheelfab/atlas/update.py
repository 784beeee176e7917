"""Make or renew an atlas from an index: one release at a time, each kept aside when it is done."""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path

from packaging.version import Version

from wheelfab import console
from wheelfab.atlas.atlas import (
    OWN,
    pack_atlas,
    plain_release,
    read_release,
    unpack_atlas,
    write_atlas,
)
from wheelfab.atlas.index import IndexedWheel, read_page
from wheelfab.atlas.members import StreamedWheel, ranged_members
from wheelfab.atlas.release import Checked, Release
from wheelfab.atlas.take import Taken, in_order, is_wanted, take
from wheelfab.atlas.transfer import CHUNK, Line, NoRangesError, RemoteFile
from wheelfab.errors import FactoryError, FormatError, UsageError
from wheelfab.records import canonical_json, digest, write_bytes
from wheelfab.store import Store
from wheelfab.toolchain import pip

KIND = "atlas"
OLDEST = Version("2.1")
_PYTHON = "cp311"  # every release from 2.1 to 2.15 has it; another where one has not
_READER = 1  # another number where a release would be read otherwise: names.py, take.py


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What became of one release: where its entry is from, the cost, what could not be read."""

    version: Version
    source: str
    origin: str
    received: int
    size: int
    seconds: float
    checked: Checked | None
    complete: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateOptions:
    """What is asked for: an index (pip's own by default), a platform, releases (all by default)."""

    index: str | None = None
    platform: str = "linux-x86_64"
    releases: tuple[Version, ...] = ()
    into: Path = OWN


def update_atlas(options: UpdateOptions, store: Store) -> tuple[Step, ...]:
    """Read the releases asked for that the store has not, and write the atlas with all of them.

    Releases that the file has and the index does not stay. Raises ``UsageError`` when the index
    has none of those asked for; a release that cannot be read is a step that says why.
    """
    line = Line(pip.transport_settings())
    wheels = find_wheels(line, options)
    chosen = options.releases or tuple(wheels)
    absent = [str(release) for release in chosen if release not in wheels]
    if absent or not chosen:
        raise UsageError(
            f"no wheel of torch {', '.join(absent)} for {options.platform}",
            where="the index",
            next_step="name another --index or --platform",
        )
    taken = {item.release.version: item for item in _present(options)}
    steps = []
    for release in sorted(chosen):
        step, item = _one(line, wheels[release], store, taken.get(release))
        steps.append(step)
        if item is not None:
            taken[release] = item
    data = pack_atlas(options.platform, [(item.release, item.symbols) for item in taken.values()])
    write_atlas(options.into, data)
    return tuple(steps)


def find_wheels(line: Line, options: UpdateOptions) -> Mapping[Version, Sequence[IndexedWheel]]:
    """The final releases from 2.1 on with their wheels for the platform, the one to read first.

    Wheels that differ in the Python alone are one build; of build numbers, the highest counts.
    Raises ``InfrastructureError`` when the index does not answer, ``FormatError`` when it is none.
    """
    url = f"{(options.index or pip.index_url()).rstrip('/')}/torch/"
    found: dict[Version, list[IndexedWheel]] = {}
    for wheel in read_page(*line.page(url), url):
        release = Version(wheel.version.public)
        if wheel.fits(options.platform) and release >= OLDEST and not release.is_prerelease:
            found.setdefault(release, []).append(wheel)
    return {release: _in_order(wheels) for release, wheels in sorted(found.items())}


def _in_order(wheels: Iterable[IndexedWheel]) -> list[IndexedWheel]:
    """For one Python first, the highest build number of it before the others."""
    newest = sorted(sorted(wheels, key=lambda wheel: wheel.name), key=_build, reverse=True)
    return sorted(newest, key=lambda wheel: _PYTHON not in wheel.pythons)


def _build(wheel: IndexedWheel) -> tuple[int, str]:
    return wheel.build or (-1, "")


def _present(options: UpdateOptions) -> Iterable[Taken]:
    """What the file has already, unless it is for another platform."""
    if not options.into.is_file():
        return
    atlas = unpack_atlas(options.into.read_bytes(), where=str(options.into))
    if atlas.platform != options.platform:
        raise UsageError(
            f"is an atlas of {atlas.platform}",
            where=str(options.into),
            next_step="name another file with --into",
        )
    symbols = atlas.symbols()
    for release in atlas.releases:
        names = {
            name: frozenset(found) for name, found in symbols[release.version].items() if found
        }
        yield Taken(release=release, symbols=names)


def _one(
    line: Line, wheels: Sequence[IndexedWheel], store: Store, present: Taken | None
) -> tuple[Step, Taken | None]:
    """One release: from the store or read now. An error is a step without an entry."""
    wheel = wheels[0]
    pythons = frozenset(tag for item in wheels for tag in item.pythons)
    started, before = time.monotonic(), line.received
    key = f"{wheel.version.public}-{digest([wheel.name, wheel.sha256, _READER])[:16]}"
    content = store.find(KIND, key)
    origin = "store" if content else "read"
    try:
        if content is None:
            console.step(f"reading torch {wheel.version} ({(wheel.size or 0) / 1e6:.0f} MB)")
            content = store.entry(KIND, key, lambda folder: _make(folder, line, wheel, pythons))
        item = _load(content, pythons)
    except FactoryError as error:
        console.warn(f"torch {wheel.version}: {error}")
        if present is None:
            return _step(wheel, "failed", None, notes=(str(error),)), None
        origin, item = "kept", present
    step = _step(wheel, origin, item.release)
    return (
        replace(step, received=line.received - before, seconds=time.monotonic() - started),
        item,
    )


def _step(
    wheel: IndexedWheel, origin: str, release: Release | None, notes: tuple[str, ...] = ()
) -> Step:
    return Step(
        version=Version(wheel.version.public),
        source=wheel.name,
        origin=origin,
        received=0,
        size=release.size if release else wheel.size or 0,
        seconds=0.0,
        checked=release.checked if release else None,
        complete=release is not None and release.complete,
        notes=release.notes if release else notes,
    )


def _make(folder: Path, line: Line, wheel: IndexedWheel, pythons: frozenset[str]) -> None:
    item = read_wheel(line, wheel, pythons)
    record = {
        "release": plain_release(item.release),
        "symbols": {name: sorted(names) for name, names in item.symbols.items()},
    }
    packed = lzma.compress(canonical_json(record).encode(), preset=1)
    write_bytes(folder / "release.json.xz", packed)


def read_wheel(line: Line, wheel: IndexedWheel, pythons: frozenset[str]) -> Taken:
    """The release in a wheel on a server, by ranges or, where there are none, in one stream.

    Raises ``InfrastructureError`` when the line breaks, ``FormatError`` for what is no torch wheel
    or not the one that the index has the SHA-256 of.
    """
    try:
        with RemoteFile(line, wheel.url) as file:
            item = take(
                wheel,
                ranged_members(BufferedReader(file, CHUNK), file.size, is_wanted),
                pythons=pythons,
            )
            return replace(item, release=replace(item.release, size=file.size))
    except NoRangesError:
        console.note("the server gives whole files only: reading it in one stream")
    stream = StreamedWheel(line.stream(wheel.url))
    item = take(wheel, stream.members(is_wanted), pythons=pythons)
    if wheel.sha256 not in (None, stream.sha256):
        raise FormatError(f"has SHA-256 {stream.sha256}, not the index's", where=wheel.name)
    release = replace(item.release, size=stream.size, sha256=stream.sha256, checked=Checked.WHEEL)
    return replace(item, release=release)


def _load(content: Path, pythons: Iterable[str]) -> Taken:
    """An entry of the store; for which Pythons there are wheels is what the index says today."""
    record = json.loads(lzma.decompress((content / "release.json.xz").read_bytes()))
    symbols = {name: frozenset(names) for name, names in record["symbols"].items()}
    release = replace(read_release(record["release"]), pythons=in_order(pythons))
    return Taken(release=release, symbols=symbols)
