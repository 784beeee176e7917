"""Arch lists: the one parser for ``matrix.toml`` and ``TORCH_CUDA_ARCH_LIST``, and what runs where.

An entry is ``X.Y`` (a cubin), with the suffix ``a`` or ``f`` where CUDA has such a target, and with
``+PTX`` when the PTX is to be kept as well; or a name such as ``Ampere``, as torch's build helper
takes them. Entries are separated by ``;``, ``,`` or white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from wheelfab import facts
from wheelfab.errors import FactoryError, UsageError
from wheelfab.suggest import nearest

FORM = "write each arch as 8.0, 9.0a or 9.0+PTX, with ; between them"

_ENTRY = re.compile(r"([1-9]\d?)\.(\d)([af]?)(\+PTX)?", re.ASCII)
_LIKE_NVCC = re.compile(r"(?:sm_|compute_)?(\d{1,2})(\d)([af]?)(\+PTX)?", re.ASCII | re.IGNORECASE)
_SEPARATOR = re.compile(r"[;,\s]+")
_LONGEST = 4096  # characters
_MOST = 128  # entries


@dataclass(frozen=True, slots=True, order=True)
class Arch:
    """A GPU architecture to compile for: a cubin and, with ``ptx``, its PTX too."""

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    @property
    def number(self) -> int:
        """``90`` for 9.0, ``120`` for 12.0."""
        return self.major * 10 + self.minor

    @property
    def sm(self) -> str:
        """The real architecture, as compilers name it: ``sm_90a``."""
        return f"sm_{self.number}{self.suffix}"

    @property
    def compute(self) -> str:
        """The virtual architecture, as compilers name it: ``compute_90a``."""
        return f"compute_{self.number}{self.suffix}"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability that it is made for."""
        return self.major, self.minor

    @property
    def target(self) -> str:
        """``9.0a``: the arch without ``+PTX``, as the facts spell it."""
        return f"{self.major}.{self.minor}{self.suffix}"

    def __str__(self) -> str:
        return f"{self.target}+PTX" if self.ptx else self.target


class Code(StrEnum):
    """What of a library a GPU runs."""

    CUBIN = "cubin"
    PTX = "ptx"


def parse_arch_list(
    text: str, *, where: str = "arch list", error: type[FactoryError] = UsageError
) -> tuple[Arch, ...]:
    """The archs that ``text`` lists, oldest first, each once; ``9.0;9.0+PTX`` is ``9.0+PTX``.

    Raises ``error`` at ``where`` for an empty list, for ``native`` and for what is not an arch that
    some CUDA release knows.
    """
    if len(text) > _LONGEST:
        raise error(f"has {len(text)} characters; at most {_LONGEST} are read", where=where)
    entries = [entry for entry in _SEPARATOR.split(text) if entry]
    if not entries:
        raise error("is empty", where=where, next_step=FORM)
    if len(entries) > _MOST:
        raise error(f"has {len(entries)} entries; at most {_MOST} are read", where=where)
    return merge(arch for entry in entries for arch in parse_entry(entry, where, error))


def parse_entry(
    entry: str, where: str = "arch list", error: type[FactoryError] = UsageError
) -> tuple[Arch, ...]:
    """The archs that one entry of a list stands for: one, or several for a name."""
    if entry in facts.arch_names():
        parts = facts.arch_names()[entry].split(";")
        return tuple(arch for part in parts for arch in parse_entry(part, where, error))
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise _unknown(entry, where, error)
    arch = Arch(int(found[1]), int(found[2]), found[3], found[4] is not None)
    if arch.target not in facts.known_archs():
        raise error(
            f"no CUDA release knows {arch.target}",
            where=where,
            next_step=f"use {close}" if (close := alternative(arch, facts.known_archs())) else FORM,
        )
    return (arch,)


def format_arch_list(archs: Iterable[Arch]) -> str:
    """The list as ``TORCH_CUDA_ARCH_LIST`` takes it: ``8.0;8.6;8.9;9.0+PTX``."""
    return ";".join(map(str, archs))


def merge(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """Each target once, oldest first; its PTX is kept when any of its entries asks for it."""
    found: dict[str, Arch] = {}
    for arch in archs:
        known = found.get(arch.target, arch)
        found[arch.target] = replace(arch, ptx=arch.ptx or known.ptx)
    return tuple(sorted(found.values()))


def alternative(arch: Arch, known: Iterable[str]) -> str | None:
    """The arch among ``known`` that serves best instead of ``arch``, in the spelling of a list.

    That is the same number without the suffix; else the newest older one of the same major number,
    whose cubin runs there; else the PTX of the newest older one. ``None`` where all are newer.
    """
    older = sorted(
        (other for other in map(_of_target, known) if not other.suffix),
        key=lambda other: other.capability,
    )
    older = [other for other in older if other.capability <= arch.capability]
    if not older:
        return None
    newest = older[-1]
    return str(replace(newest, ptx=arch.ptx or newest.major != arch.major))


def cubin_runs_on(arch: Arch, capability: tuple[int, int]) -> bool:
    """Whether the cubin of ``arch`` runs on a GPU of that compute capability.

    Source: CUDA Programming Guide, binary compatibility and family-specific targets.
    """
    match arch.suffix:
        case "":
            return arch.major == capability[0] and arch.minor <= capability[1]
        case "f":
            return _in_family(arch, capability)
        case _:
            return arch.capability == capability


def ptx_runs_on(arch: Arch, capability: tuple[int, int]) -> bool:
    """Whether a driver that is new enough can compile the PTX of ``arch`` for that capability."""
    match arch.suffix:
        case "":
            return arch.capability <= capability
        case "f":
            return _in_family(arch, capability)
        case _:
            return arch.capability == capability


def runs_on(arch: Arch, capability: tuple[int, int]) -> bool:
    """Whether what is compiled for ``arch`` runs on that capability, as cubin or, kept, as PTX."""
    return cubin_runs_on(arch, capability) or (arch.ptx and ptx_runs_on(arch, capability))


def code_for(archs: Iterable[Arch], capability: tuple[int, int]) -> Code | None:
    """What a GPU of that capability runs of a library made for ``archs``; ``None``: nothing."""
    listed_archs = tuple(archs)
    if any(cubin_runs_on(arch, capability) for arch in listed_archs):
        return Code.CUBIN
    if any(arch.ptx and ptx_runs_on(arch, capability) for arch in listed_archs):
        return Code.PTX
    return None


def _in_family(arch: Arch, capability: tuple[int, int]) -> bool:
    base = f"{arch.major}.{arch.minor}"
    return f"{capability[0]}.{capability[1]}" in facts.arch_families().get(base, (base,))


def _of_target(target: str) -> Arch:
    number, suffix = (target[:-1], target[-1]) if target[-1] in "af" else (target, "")
    major, _, minor = number.partition(".")
    return Arch(int(major), int(minor), suffix)


def _unknown(entry: str, where: str, error: type[FactoryError]) -> FactoryError:
    """The error for an entry that is neither an arch nor a name, with what was probably meant."""
    if entry.casefold() == "native":
        return error(
            "'native' would ask the GPUs of the build machine, which never decide what is built",
            where=where,
            next_step=FORM,
        )
    name = entry.partition("+")[0]
    if name in facts.arch_names():
        step = f"{name} stands for {facts.arch_names()[name]}"
    elif (meant := _meant(entry)) is not None:
        step = f"write {meant}"
    elif (close := nearest(entry, facts.arch_names())) is not None:
        step = f"did you mean {close!r}?"
    else:
        step = f"{FORM}, or a name such as Ampere"
    return error(f"unknown arch {entry[:40]!r}", where=where, next_step=step)


def _meant(entry: str) -> str | None:
    """``9.0a`` for ``sm_90a``, ``90A`` or ``9.0A``; ``None`` for what is no known arch anyway."""
    found = _LIKE_NVCC.fullmatch(entry.replace(".", "", 1) if entry.count(".") == 1 else entry)
    if found is None:
        return None
    arch = Arch(int(found[1]), int(found[2]), found[3].lower(), found[4] is not None)
    return str(arch) if arch.target in facts.known_archs() else None
