"""Which manylinux policy a wheel's libraries keep, by auditwheel's own data (PEP 600)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from packaging.version import Version

from wheelfab.elf import Elf

# By e_machine: those that auditwheel has policies for and whose files are read here.
MACHINES = {
    21: "ppc64le",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
_LOADER = ("ld-linux", "ld64.so")  # what it defines is every policy's own
FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI")


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One policy. ``versions``: symbol versions by family; ``banned``: symbols by library.

    ``libraries`` are those that every system of that level has.
    """

    name: str
    aliases: tuple[str, ...]
    versions: Mapping[str, frozenset[str]]
    libraries: frozenset[str]
    banned: Mapping[str, frozenset[str]]

    def refused(self, elf: Elf) -> tuple[str, ...]:
        """What a library wants by symbol version that this level has not; empty: it is kept."""
        too_new = {
            version
            for version in wanted(elf)
            if (known := self.versions.get(version.partition("_")[0])) is not None
            and version.partition("_")[2] not in known
        }
        names = {symbol.name for symbol in elf.undefined}
        banned = {
            f"{name} of {library}"
            for library in self.banned
            if library in elf.needed
            for name in self.banned[library] & names
        }
        return (*sorted(too_new), *sorted(banned))


@lru_cache
def levels(machine: str) -> tuple[Level, ...]:
    """The policies for a machine, oldest first."""
    text = files("auditwheel.policy").joinpath("manylinux-policy.json").read_text(encoding="utf-8")
    rows = [row for row in json.loads(text) if machine in row["symbol_versions"]]
    rows.sort(key=lambda row: -int(row["priority"]))
    return tuple(
        Level(
            name=f"{row['name']}_{machine}",
            aliases=tuple(f"{alias}_{machine}" for alias in row["aliases"]),
            versions={
                family: frozenset(found)
                for family, found in row["symbol_versions"][machine].items()
            },
            libraries=frozenset(row["lib_whitelist"]),
            banned={library: frozenset(names) for library, names in row["blacklist"].items()},
        )
        for row in rows
    )


def level_of(tag: str) -> Level | None:
    """The policy that a platform tag names, ``manylinux_2_28_x86_64``; ``None`` where none does."""
    found = [
        level
        for machine in MACHINES.values()
        for level in levels(machine)
        if tag == level.name or tag in level.aliases
    ]
    return found[0] if found else None


def kept(elves: Iterable[Elf], machine: str) -> Level | None:
    """The oldest policy whose symbol versions all libraries keep to; ``None``: no policy does."""
    found = list(elves)
    return next((one for one in levels(machine) if not any(map(one.refused, found))), None)


def wanted(elf: Elf) -> tuple[str, ...]:
    """The symbol versions that a library wants from others, such as ``GLIBC_2.17``."""
    return tuple(
        version
        for library, versions in elf.version_needs.items()
        if not library.startswith(_LOADER)
        for version in versions
    )


def floors(elves: Iterable[Elf]) -> dict[str, str]:
    """The newest version wanted of glibc, libstdc++ and its ABI, by family; none where none is."""
    found: dict[str, Version] = {}
    for elf in elves:
        for text in wanted(elf):
            family, _, number = text.partition("_")
            if family not in FAMILIES:
                continue
            try:
                version = Version(number)
            except ValueError:
                continue  # GLIBC_PRIVATE, CXXABI_TM_1, a number of thousands of digits
            found[family] = max(version, found.get(family, version))
    return {family: str(found[family]) for family in FAMILIES if family in found}
