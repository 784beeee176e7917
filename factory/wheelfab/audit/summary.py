"""The facts of a wheel as plain values, for the JSON of an audit."""

from __future__ import annotations

from typing import Any

from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.kind import kind_of
from wheelfab.audit.library import LibraryFacts

_LARGEST = 10


def summarise(facts: WheelFacts) -> dict[str, Any]:
    """What an audit's JSON says of a wheel: JSON's own types, nothing of the machine or the day."""
    if not facts.sound:
        return {}
    largest = sorted(facts.members, key=lambda member: (-member.size, member.name))[:_LARGEST]
    return {
        "kind": str(kind_of(facts)),
        "members": len(facts.members),
        "unpacked": sum(member.size for member in facts.members),
        "largest": [{"name": one.name, "size": one.size} for one in largest],
        "libraries": [summarise_library(library) for library in facts.libraries],
    }


def summarise_library(library: LibraryFacts) -> dict[str, Any]:
    """The same of one library."""
    plain: dict[str, Any] = {
        "name": library.name,
        "size": library.size,
        "sha256": library.sha256,
        "problem": library.problem,
    }
    if library.elf is not None:
        plain["needed"] = list(library.elf.needed)
    return plain
