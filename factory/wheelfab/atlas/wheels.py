"""A wheel against the atlas: its libraries' questions, and the answers of all of them together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab.archive import open_archive
from wheelfab.atlas.answer import Answer, Kind, Verdict, answer, kind_of
from wheelfab.atlas.atlas import Atlas
from wheelfab.atlas.names import is_torch
from wheelfab.atlas.registration import Keys, read_keys
from wheelfab.atlas.release import Release
from wheelfab.elf import MAGIC, Elf, mapped, parse_elf
from wheelfab.wheel import Wheel, read_wheel

_CHUNK = 1 << 20


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

    Raises ``WheelError`` or ``FormatError`` when it cannot be read.
    """
    wheel = read_wheel(path)
    bindings = read_bindings(path)
    requirement = wheel.requirement("torch")
    allowed = requirement.specifier if requirement is not None else None
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
    answers = tuple(
        _joined(release, {name: found[number] for name, found in several.items()}, allowed)
        for number, release in enumerate(atlas.releases)
    )
    kinds = {binding.kind for binding in bindings}
    return WheelReport(
        file=wheel.file,
        kind=Kind.CLASSIC if Kind.CLASSIC in kinds else Kind.STABLE if kinds else Kind.NONE,
        bindings=bindings,
        requires=str(allowed) if allowed is not None else None,
        since=_since(answers),
        answers=answers if bindings else (),
        notes=tuple(_notes(wheel, bindings, answers)),
    )


def read_bindings(path: Path) -> tuple[Binding, ...]:
    """The libraries in the wheel ``path`` that want something of torch, sorted by name.

    What another library of the wheel defines is not torch's to have.
    """
    found: dict[str, tuple[Elf, Keys]] = {}
    with open_archive(path) as archive, tempfile.TemporaryDirectory() as folder:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            if ".so" not in info.filename.rpartition("/")[2]:
                continue
            place = Path(folder) / "library"
            with archive.open(info) as packed, place.open("wb") as file:
                first = packed.read(_CHUNK)
                if not first.startswith(MAGIC):
                    continue
                while first:
                    file.write(first)
                    first = packed.read(_CHUNK)
            with mapped(place) as data:
                elf = parse_elf(data, where=f"{path.name}: {info.filename}")
                found[info.filename] = (elf, read_keys(data, elf))
    own = {symbol.name for elf, _ in found.values() for symbol in elf.defined}
    bundled = {name.rpartition("/")[2] for name in found}
    return tuple(
        binding
        for name, (elf, keys) in found.items()
        if (binding := _binding(name, elf, keys, own, bundled)) is not None
    )


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
    release: Release, answers: Mapping[str, Answer], allowed: SpecifierSet | None
) -> WheelAnswer:
    """One answer of many libraries: the same for all, or that they disagree."""
    verdicts = {item.verdict for item in answers.values()}
    reasons = [f"{name}: {item.reason}" for name, item in answers.items()]
    if len(verdicts) == 1:
        (verdict,) = verdicts
        reason = next(iter(answers.values())).reason if len(answers) == 1 else "; ".join(reasons)
    else:
        verdict, reason = Verdict.UNKNOWN, "its libraries disagree: " + "; ".join(reasons)
    return WheelAnswer(
        release=release,
        verdict=verdict if answers else Verdict.UNKNOWN,
        missing=tuple(sorted({name for item in answers.values() for name in item.missing})),
        reason=reason,
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
    wheel: Wheel, bindings: Iterable[Binding], answers: Iterable[WheelAnswer]
) -> Iterator[str]:
    bindings, answers = tuple(bindings), tuple(answers)
    libraries = [name for name in wheel.files if ".so" in name.rpartition("/")[2]]
    if not bindings:
        what = "its libraries want nothing of torch" if libraries else "it has no library"
        yield f"{what}: the atlas has nothing to say of it"
    if len({binding.kind for binding in bindings}) > 1:
        kinds = ", ".join(f"{binding.name}: {binding.kind}" for binding in bindings)
        yield f"libraries of different interfaces ({kinds})"
    for binding in bindings:
        if not binding.keys.read:
            yield f"{binding.name}: the dispatch keys of its kernels could not be read"
    bad = [str(i.release.version) for i in answers if i.allowed and i.verdict is Verdict.FAILS]
    if bindings and bad:
        yield f"METADATA allows torch {', '.join(bad)}, on which it fails"
