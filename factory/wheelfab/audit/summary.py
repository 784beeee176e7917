"""The facts of a wheel for the JSON of an audit: plain records, whose schema is published.

Nothing of the machine or the day stands in them: the same wheel gives the same facts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from wheelfab.audit.binaries import (
    DeviceSummary,
    LinkSummary,
    TorchSummary,
    device_summary,
    gpu_names,
    link_summary,
    torch_summary,
)
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.kind import WheelKind, kind_of
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.torchside import bindings

_LARGEST = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberSummary:
    """A member; ``size`` unpacked and ``packed``, in bytes."""

    name: str
    size: int
    packed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LibrarySummary:
    """A shared library or program. ``problem`` says why the other facts are not there.

    ``link`` is ``None`` of a cubin, ``device`` of a file without device code.
    """

    name: str
    size: int
    sha256: str
    problem: str
    soname: str | None
    needed: tuple[str, ...]
    link: LinkSummary | None
    device: DeviceSummary | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSummary:
    """A sound wheel. ``unpacked`` in bytes; ``largest`` are the ten that take most of the file.

    ``gpus``: those that some device code runs on, by compute capability, with their names.
    """

    kind: WheelKind
    name: str
    version: str
    tags: tuple[str, ...]
    requires_python: str
    requires_dist: tuple[str, ...]
    members: int
    unpacked: int
    largest: tuple[MemberSummary, ...]
    device_bytes: dict[str, int]
    libraries: tuple[LibrarySummary, ...]
    gpus: dict[str, str]
    torch: TorchSummary | None


def summarise(facts: WheelFacts) -> WheelSummary | None:
    """The facts for the JSON; ``None`` of an archive that is not sound."""
    if not facts.sound:
        return None
    name, metadata = facts.name, facts.metadata
    return WheelSummary(
        kind=kind_of(facts),
        name=name.name if name else "",
        version=str(name.version) if name else "",
        tags=tuple(sorted(str(tag) for tag in name.tags)) if name else (),
        requires_python=str(metadata.requires_python or "") if metadata else "",
        requires_dist=tuple(sorted(str(need) for need in facts.requires_dist)),
        members=len(facts.members),
        unpacked=sum(member.size for member in facts.members),
        largest=largest_members(facts),
        device_bytes=device_bytes(facts),
        libraries=tuple(summarise_library(library) for library in facts.libraries),
        gpus=gpu_names(library.device for library in facts.libraries),
        torch=torch_summary(bindings(facts)),
    )


def largest_members(facts: WheelFacts) -> tuple[MemberSummary, ...]:
    """The ten members that take most of the file, the largest first."""
    ordered = sorted(facts.members, key=lambda member: (-member.packed, member.name))
    return tuple(
        MemberSummary(name=one.name, size=one.size, packed=one.packed) for one in ordered[:_LARGEST]
    )


def device_bytes(facts: WheelFacts) -> dict[str, int]:
    """What the device code of each target takes in all libraries, unpacked, in bytes."""
    total: Counter[str] = Counter()
    for library in facts.libraries:
        total.update(library.device.bytes_by_target())
    return dict(sorted(total.items()))


def summarise_library(library: LibraryFacts) -> LibrarySummary:
    """The same of one library."""
    elf = library.elf
    return LibrarySummary(
        name=library.name,
        size=library.size,
        sha256=library.sha256,
        problem=library.problem,
        soname=elf.soname if elf else None,
        needed=elf.needed if elf else (),
        link=link_summary(library),
        device=device_summary(library.device),
    )
