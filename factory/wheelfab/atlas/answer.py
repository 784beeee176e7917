"""The rules: on which torch releases a library loads, by symbols, needs and dispatch keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packaging.specifiers import SpecifierSet

from wheelfab.atlas.atlas import Atlas
from wheelfab.atlas.names import is_shim, is_torch
from wheelfab.atlas.registration import NO_KEYS, Keys
from wheelfab.atlas.release import Release


class Kind(StrEnum):
    """The interface to torch that a library rests on."""

    NONE = "none"
    STABLE = "stable"
    CLASSIC = "classic"


class Verdict(StrEnum):
    """Whether a library loads and its operations answer."""

    LOADS = "loads"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A library, or a wheel, on one release; ``missing`` are mangled, sorted."""

    release: Release
    verdict: Verdict
    missing: tuple[str, ...]
    reason: str


# What needs these finds them beside torch or not at all.
_OF_TORCH = ("libtorch", "libc10", "libshm", "libcaffe2")
_OF_CUDA = ("libcud", "libcu", "libnv", "libnccl")
_OLD_STRING = re.compile(r"_ZN.*[EKRO_]Ss(?=[A-Z0-9_bijlmdfv]|$)")  # std::string before C++11's
_DRIVER = ("libcuda.so", "libnvidia-")


def kind_of(undefined: Iterable[str]) -> Kind:
    """The interface that the undefined symbols of a library belong to."""
    names = [name for name in undefined if is_torch(name)]
    if not names:
        return Kind.NONE
    return Kind.STABLE if all(is_shim(name) for name in names) else Kind.CLASSIC


def answer(
    atlas: Atlas,
    undefined: Collection[str],
    kind: Kind | None = None,
    *,
    needed: Collection[str] | None = None,
    keys: Keys = NO_KEYS,
    allowed: SpecifierSet | None = None,
) -> tuple[Answer, ...]:
    """What becomes of a library on each release of the atlas, oldest first.

    ``undefined`` are its undefined symbols that are not weak (others than torch's are left out),
    ``needed`` its DT_NEEDED: a symbol counts only where the loader looks for it. Without it every
    library of torch is looked into. ``kind`` is computed where it is not given. Of a classic
    library, ``keys`` are its dispatch keys by number, and ``allowed`` (what METADATA requires of
    torch) decides which release they are of where the symbols do not.
    """
    names = sorted({name for name in undefined if is_torch(name)})
    chosen = kind or kind_of(names)
    where = atlas.where(names)
    needs = None if needed is None else frozenset(needed)
    answers = [
        _by_symbols(release, names, {name: where[name][number] for name in names}, needs)
        for number, release in enumerate(atlas.releases)
    ]
    return tuple(_by_keys(answers, keys, allowed) if chosen is Kind.CLASSIC else answers)


def _by_symbols(
    release: Release,
    names: Collection[str],
    where: Mapping[str, frozenset[str]],
    needed: frozenset[str] | None,
) -> Answer:
    """What the loader says: a library that is not there, then a symbol that is in none."""
    absent = _absent(release, needed or frozenset())
    if absent:
        reason = f"{absent[0]} is not in this release ({release.build})"
        return _answer(release, Verdict.FAILS, reason)
    reach = None if needed is None else release.loaded_with(needed)
    missing = tuple(
        name for name in names if not (where[name] if reach is None else where[name] & reach)
    )
    if missing and release.complete:
        beyond = sorted({library for name in missing for library in where[name]})
        reason = f"{len(missing)} of {len(names)} symbols are missing{_abis(release, names)}"
        if beyond:
            reason += f"; {', '.join(beyond)} would have some, and is not among what it needs"
        return _answer(release, Verdict.FAILS, reason, missing)
    if missing:
        reason = f"the atlas has not all of this release: {'; '.join(release.notes)}"
        return _answer(release, Verdict.UNKNOWN, reason, missing)
    other = _other_cuda(release, needed or frozenset())
    if other:
        return _answer(release, Verdict.UNKNOWN, other)
    found = f"all {len(names)} symbols are there" if names else "it wants no symbol of torch's"
    return _answer(release, Verdict.LOADS, found)


def _abis(release: Release, names: Collection[str]) -> str:
    """What is to be said of string ABIs where a library and a release have not the same one."""
    new = any("cxx11" in name for name in names)
    old = not new and any(_OLD_STRING.search(name) for name in names)
    if release.cxx11_abi is None or not (new or old) or new == release.cxx11_abi:
        return ""
    mine, theirs = ("C++11", "old") if new else ("old", "C++11")
    return f" (it has the {mine} string ABI, this release the {theirs} one)"


def _absent(release: Release, needed: Iterable[str]) -> tuple[str, ...]:
    """Libraries of torch's that are wanted and not there."""
    return tuple(
        sorted(
            name
            for name in needed
            if name.startswith(_OF_TORCH) and release.library(name) is None and release.complete
        )
    )


def _other_cuda(release: Release, needed: Iterable[str]) -> str:
    """Why a library of CUDA's that is wanted may not be found beside this build."""
    brought = {need for library in release.libraries for need in library.needed}
    brought |= {library.name for library in release.libraries}
    for name in sorted(needed):
        if not name.startswith(_OF_CUDA) or name.startswith(_DRIVER) or name in brought:
            continue
        stem = name.partition(".so")[0]
        same = sorted(other for other in brought if other.partition(".so")[0] == stem)
        found = f"it brings {same[0]}" if same else "it brings none"
        return f"needs {name}, which {release.build} does not need itself ({found})"
    return ""


def _by_keys(
    answers: Iterable[Answer], keys: Keys, allowed: SpecifierSet | None
) -> Iterable[Answer]:
    """Of the releases whose symbols fit, those on which the numbers mean what was compiled.

    The numbers are those of one release's header. A release on which one of them is no key for
    kernels is not it, nor any release that names them likewise: there a kernel is never called, and
    its operation raises NotImplementedError, or it is called for another device. Where several
    namings are left, what METADATA allows decides, or nothing does.
    """
    answers = tuple(answers)
    fitting = [item.release for item in answers if item.verdict is Verdict.LOADS]
    names = {release.version: _meaning(release, keys) for release in fitting}
    sound = {meaning for meaning in names.values() if all(map(_takes_kernels, meaning))}
    if len(sound) > 1 and allowed is not None:
        pinned = {names[r.version] for r in fitting if allowed.contains(r.version)} & sound
        sound = pinned if len(pinned) == 1 else sound
    unread = not keys.read and len({release.dispatch for release in fitting}) > 1
    for item in answers:
        meaning = names.get(item.release.version)
        if meaning is None or not (keys.numbers or unread):
            yield item
        elif unread:
            reason = "loads, but its dispatch keys, which differ among the releases it loads on"
            yield _answer(item.release, Verdict.UNKNOWN, f"{reason}, could not be read")
        elif meaning not in sound:
            yield _answer(item.release, Verdict.FAILS, _shifted(keys, meaning, sound))
        elif len(sound) > 1:
            reason = f"loads, with kernels for {', '.join(meaning)} here and for others elsewhere"
            yield _answer(item.release, Verdict.UNKNOWN, f"{reason}: nothing says which is meant")
        else:
            yield item


def _shifted(keys: Keys, here: Sequence[str], sound: Collection[Sequence[str]]) -> str:
    numbers = ", ".join(map(str, sorted(keys.numbers)))
    meant = f", where {', '.join(next(iter(sound)))} was meant" if len(sound) == 1 else ""
    return (
        "loads, but an operation raises NotImplementedError or runs another device's kernel: "
        f"dispatch keys {numbers} are {', '.join(here)} here{meant}"
    )


def _meaning(release: Release, keys: Keys) -> tuple[str, ...]:
    return tuple(
        release.dispatch[number] if number < len(release.dispatch) else f"nothing ({number})"
        for number in sorted(keys.numbers)
    )


def _takes_kernels(name: str) -> bool:
    """Whether an extension registers kernels under a key.

    Markers of ranges are no keys, and torch's builds for ROCm take CUDA's kernels: HIP is CUDA read
    by a header with a key less.
    """
    return not name.startswith(("StartOf", "EndOf", "nothing", "Undefined")) and name != "HIP"


def _answer(
    release: Release, verdict: Verdict, reason: str, missing: tuple[str, ...] = ()
) -> Answer:
    return Answer(release=release, verdict=verdict, missing=missing, reason=reason)
