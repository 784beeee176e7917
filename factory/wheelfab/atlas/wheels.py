"""A wheel against the atlas: its libraries' questions, and the answers of all of them together."""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename
from packaging.version import Version

from wheelfab.archive import layout_flaws, open_archive, read_member
from wheelfab.atlas.answer import Answer, Kind, Verdict, answer, kind_of
from wheelfab.atlas.atlas import Atlas
from wheelfab.atlas.joined import join
from wheelfab.atlas.names import is_torch
from wheelfab.atlas.registration import Keys, read_keys
from wheelfab.atlas.release import Release
from wheelfab.elf import MAGIC, Elf, mapped, parse_elf
from wheelfab.errors import FormatError, WheelError
from wheelfab.requires import required
from wheelfab.wheelrules import parse_name

_CHUNK = 1 << 20
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """A library of a wheel that wants something of torch: symbols, or one of its libraries."""

    name: str
    kind: Kind
    undefined: tuple[str, ...]
    needed: tuple[str, ...]
    keys: Keys


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelAnswer:
    """A wheel on one release of torch; ``allowed`` is what its METADATA says of that release."""

    release: Release
    verdict: Verdict
    missing: tuple[str, ...]
    reason: str
    allowed: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelReport:
    """A wheel, its libraries that want torch, and the answers, oldest release first.

    ``since``: the first release from which on every later one has all its symbols. ``notes`` say
    what a reader must know of the wheel as a whole.
    """

    file: str
    kind: Kind
    bindings: tuple[Binding, ...]
    requires: str | None
    since: Version | None
    answers: tuple[WheelAnswer, ...]
    notes: tuple[str, ...]


def ask(atlas: Atlas, path: Path) -> WheelReport:
    """What becomes of the wheel in ``path`` on each release of the atlas; nothing is imported.

    Raises ``WheelError`` when it is no sound archive, ``FormatError`` when a library of it is not.
    """
    bindings, libraries, allowed = _read(path)
    several = {
        binding.name: answer(
            atlas,
            binding.undefined,
            binding.kind,
            needed=binding.needed,
            keys=binding.keys,
            allowed=allowed,
        )
        for binding in bindings
    }
    mute = {binding.name for binding in bindings if binding.kind is Kind.NONE}
    answers = tuple(
        _joined(release, {name: found[number] for name, found in several.items()}, mute, allowed)
        for number, release in enumerate(atlas.releases if bindings else ())
    )
    kinds = {binding.kind for binding in bindings}
    kind = next((kind for kind in (Kind.CLASSIC, Kind.STABLE) if kind in kinds), Kind.NONE)
    return WheelReport(
        file=path.name,
        kind=kind,
        bindings=bindings,
        requires=str(allowed) if allowed is not None else None,
        since=_since(answers),
        answers=answers,
        notes=tuple(_notes(bindings, answers, libraries=libraries)),
    )


def read_bindings(path: Path) -> tuple[Binding, ...]:
    """The libraries in the wheel ``path`` that want something of torch, sorted by name.

    What another library of the wheel defines is not torch's to have. Raises as ``ask``.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[tuple[Binding, ...], int, SpecifierSet | None]:
    """Its bindings, how many libraries it has, and which releases of torch METADATA allows."""
    if not path.is_file():
        raise WheelError("there is no such file", where=str(path))
    found: dict[str, tuple[Elf, Keys]] = {}
    with open_archive(path) as archive, tempfile.TemporaryDirectory() as folder:
        flaws = layout_flaws(archive, path.stat().st_size)
        if flaws:
            raise WheelError(str(flaws[0]), where=str(path), next_step="download it again")
        for name in sorted(archive.namelist()):
            place = Path(folder) / "library"
            if ".so" in name.rpartition("/")[2] and _unpack(archive, name, place):
                with mapped(place) as data:
                    elf = parse_elf(data, where=f"{path.name}: {name}")
                    found[name] = (elf, read_keys(data, elf))
        allowed = _allowed(archive, path.name)
    own = {symbol.name for elf, _ in found.values() for symbol in elf.defined}
    bundled = {name.rpartition("/")[2] for name in found}
    bindings = (_binding(name, *facts, own, bundled) for name, facts in found.items())
    return tuple(item for item in bindings if item is not None), len(found), allowed


def _unpack(archive: ZipFile, name: str, place: Path) -> bool:
    """Write a member to ``place`` if it begins as a library does."""
    try:
        with archive.open(name) as packed, place.open("wb") as file:
            piece = packed.read(_CHUNK)
            if not piece.startswith(MAGIC):
                return False
            while piece:
                file.write(piece)
                piece = packed.read(_CHUNK)
    except (BadZipFile, zlib.error, EOFError) as error:
        raise FormatError(str(error) or "ends early", where=name) from error
    return True


def _allowed(archive: ZipFile, file: str) -> SpecifierSet | None:
    """What METADATA requires of torch; other flaws in it are not ours to judge."""
    name = next((name for name in archive.namelist() if _METADATA.fullmatch(name)), None)
    if name is None:
        return None
    raw, _ = parse_email(read_member(archive, name))
    needs = []
    for text in raw.get("requires_dist", ()):
        with suppress(InvalidRequirement):
            needs.append(Requirement(text))
    return required(needs, _tags(file)).get("torch")


def _tags(file: str) -> Collection[Tag]:
    try:
        return parse_name(file).tags
    except InvalidWheelFilename:
        return ()


def _binding(name: str, elf: Elf, keys: Keys, own: set[str], bundled: set[str]) -> Binding | None:
    undefined = sorted(
        symbol.name
        for symbol in elf.undefined
        if not symbol.weak and is_torch(symbol.name) and symbol.name not in own
    )
    needed = tuple(need for need in elf.needed if need not in bundled)
    if not undefined and not any(need.startswith(("libtorch", "libc10")) for need in needed):
        return None
    return Binding(
        name=name, kind=kind_of(undefined), undefined=tuple(undefined), needed=needed, keys=keys
    )


def _joined(
    release: Release,
    answers: Mapping[str, Answer],
    mute: Collection[str],
    allowed: SpecifierSet | None,
) -> WheelAnswer:
    joined = join(answers, mute)
    return WheelAnswer(
        release=release,
        verdict=joined.verdict,
        missing=tuple(sorted({name for item in joined.by.values() for name in item.missing})),
        reason=joined.reason,
        allowed=None if allowed is None else allowed.contains(release.version, prereleases=True),
    )


def _since(answers: Sequence[WheelAnswer]) -> Version | None:
    """The release after the last one that lacks a symbol."""
    first = None
    for item in reversed(answers):
        if item.verdict is not Verdict.LOADS:
            break
        first = item.release.version
    return first


def _notes(
    bindings: Sequence[Binding], answers: Sequence[WheelAnswer], *, libraries: int
) -> Iterator[str]:
    if not bindings:
        what = "its libraries want nothing of torch" if libraries else "it has no library"
        yield f"{what}: the atlas has nothing to say of it"
    if len({binding.kind for binding in bindings} - {Kind.NONE}) > 1:
        kinds = ", ".join(f"{binding.name}: {binding.kind}" for binding in bindings)
        yield f"libraries of different interfaces ({kinds})"
    for binding in bindings:
        if not binding.keys.read:
            yield f"{binding.name}: the dispatch keys of its kernels could not be read"
    bad = [str(i.release.version) for i in answers if i.allowed and i.verdict is Verdict.FAILS]
    if bad:
        yield f"METADATA allows torch {', '.join(bad)}, on which it fails"
