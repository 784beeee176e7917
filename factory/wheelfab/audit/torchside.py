"""What a wheel's libraries want of torch: their binding, the C++ string ABI, the releases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from packaging.specifiers import SpecifierSet

from wheelfab.atlas import (
    Answer,
    Atlas,
    Kind,
    Release,
    Verdict,
    answer,
    is_torch,
    kind_of,
    read_atlas,
)
from wheelfab.atlas.joined import Joined, join
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.needs import neighbours, required

_NEW_ABI = re.compile(r"St7__cxx11|B5cxx11")
_COMPONENT = re.compile(r"\d{1,9}")  # Python converts no number of thousands of digits


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """A library that wants something of torch. ``cxx11_abi``: ``None`` where no name has a string.

    ``undefined`` are the symbols that torch must have; ``needed`` what it needs beside the wheel.
    """

    name: str
    kind: Kind
    cxx11_abi: bool | None
    undefined: tuple[str, ...]
    answers: tuple[Answer, ...]


def bindings(facts: WheelFacts) -> tuple[Binding, ...]:
    """The libraries of the wheel that want something of torch, each asked of every release.

    Nothing where the wheel is torch. Five rules want it: it is kept for the wheel asked of last.
    """
    if facts.name is not None and facts.name.name == "torch":
        return ()
    return _known(_Same(facts))


@dataclass(frozen=True, eq=False, slots=True)
class _Same:
    """The facts of a wheel, equal to themselves alone: comparing their symbols takes longer."""

    facts: WheelFacts

    def __hash__(self) -> int:
        return id(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.facts is self.facts


@lru_cache(maxsize=1)
def _known(same: _Same) -> tuple[Binding, ...]:
    return tuple(_bindings(same.facts, _atlas(), requirement(same.facts)))


def _bindings(facts: WheelFacts, atlas: Atlas, wanted: SpecifierSet | None) -> Iterator[Binding]:
    own = {
        symbol.name
        for library in facts.libraries
        if library.host
        for symbol in library.host.defined
        if is_torch(symbol.name)
    }
    bundled = neighbours(facts).by_name
    for library in facts.libraries:
        if library.host is None:
            continue
        names = {symbol.name for symbol in library.host.undefined if not symbol.weak} - own
        undefined = tuple(sorted(filter(is_torch, names)))
        needed = tuple(name for name in library.host.needed if name not in bundled)
        if not undefined:
            continue
        kind = kind_of(undefined)
        yield Binding(
            name=library.name,
            kind=kind,
            cxx11_abi=cxx11_abi(undefined),
            undefined=undefined,
            answers=answer(
                atlas, undefined, kind, needed=needed, keys=library.keys, allowed=wanted
            ),
        )


@lru_cache
def _atlas() -> Atlas:
    return read_atlas()


def requirement(facts: WheelFacts) -> SpecifierSet | None:
    """What METADATA requires of torch, of all its lines; ``None`` where it requires none."""
    return required(facts).get("torch")


def cxx11_abi(names: Iterable[str]) -> bool | None:
    """The C++ string ABI of mangled names: by ``__cxx11``, or ``Ss``, the old ``std::string``."""
    found = None
    for name in names:
        if _NEW_ABI.search(name):
            return True
        if found is None and name.startswith("_Z") and "Ss" in _without_identifiers(name):
            found = False
    return found


def _without_identifiers(name: str) -> str:
    """A mangled name without its identifiers, so that ``processState`` is no string."""
    parts, at = [], 0
    while (match := _COMPONENT.search(name, at)) is not None:
        parts.append(name[at : match.start()])
        before = name[match.start() - 1] if match.start() else ""
        at = match.end() if before in "LSTi_" else match.end() + int(match[0])
        if before in "LSTi_":
            parts.append(match[0])
    return "".join((*parts, name[at:]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """All libraries of a wheel on one release, as ``wheelfab compat`` joins them, and why."""

    release: Release
    verdict: Verdict
    reason: str
    disagree: bool


def together(found: Iterable[Binding]) -> tuple[Together, ...]:
    """The verdict of all libraries together on each release, oldest first."""
    found = tuple(found)
    rows = []
    for several in zip(*(binding.answers for binding in found), strict=True):
        joined = join(dict(zip((binding.name for binding in found), several, strict=True)))
        rows.append(
            Together(
                release=several[0].release,
                verdict=joined.verdict,
                reason="" if joined.verdict is Verdict.LOADS else _reason(joined),
                disagree=joined.disagree,
            )
        )
    return tuple(rows)


def _reason(joined: Joined) -> str:
    """Why, with a library's name before it."""
    text = joined.reason
    names = tuple(joined.by)
    return text if any(name in text for name in names) else f"{names[0]}: {text}"
