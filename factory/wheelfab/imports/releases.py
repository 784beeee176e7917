"""Which releases of torch and triton a package can meet, by its own requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

_MAJORS, _MINORS, _PATCHES = range(1, 5), range(30), range(6)


@dataclass(frozen=True, kw_only=True, slots=True)
class Releases:
    """What a package's metadata asks of others, by their names."""

    asked: Mapping[str, SpecifierSet] = field(default_factory=dict)

    def allow(self, only: Iterable[tuple[str, str]]) -> bool:
        """Whether something that holds ``only`` with some releases of others can hold here."""
        return all(
            name not in self.asked or _meet(self.asked[name], SpecifierSet(range_))
            for name, range_ in only
        )


def read_releases(lines: Iterable[str]) -> Releases:
    """The requirements in ``lines`` that always hold; those of extras and odd ones are left out."""
    asked: dict[str, SpecifierSet] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and "extra" in str(requirement.marker):
            continue
        name = canonicalize_name(requirement.name)
        asked[name] = asked.get(name, SpecifierSet()) & requirement.specifier
    return Releases(asked=asked)


def _meet(one: SpecifierSet, other: SpecifierSet) -> bool:
    versions = (f"{a}.{b}.{c}" for a in _MAJORS for b in _MINORS for c in _PATCHES)
    return any(one.contains(version) and other.contains(version) for version in versions)
