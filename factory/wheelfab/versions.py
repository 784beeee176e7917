"""Versions: series of releases, their requirements, CUDA releases, Pythons, NVIDIA drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import total_ordering

from packaging.specifiers import SpecifierSet
from packaging.version import Version

_PLAIN = re.compile(r"(?:0|[1-9]\d{0,3})(?:\.(?:0|[1-9]\d{0,3}))*", re.ASCII)
_DRIVER = re.compile(r"[1-9]\d{1,3}(?:\.\d{1,3}){1,2}", re.ASCII)


def plain_version(text: str, parts: int) -> Version | None:
    """A version of exactly ``parts`` plain numbers (``12.1``, ``2.4.1``), or ``None``.

    Stricter than PEP 440: no ``v``, no spaces, no leading zeros, no local part, so that each
    version has one spelling.
    """
    if not _PLAIN.fullmatch(text) or text.count(".") != parts - 1:
        return None
    return Version(text)


def series(version: Version) -> Version:
    """The series (major.minor) that a release belongs to: ``2.4`` of ``2.4.1+cpu``."""
    return Version(f"{version.major}.{version.minor}")


def next_series(version: Version) -> Version:
    """The series after the one of ``version``: ``2.5`` after ``2.4.1``."""
    return Version(f"{version.major}.{version.minor + 1}")


def series_requirement(lowest: Version) -> SpecifierSet:
    """The releases of one series from ``lowest`` on: ``>=2.4.1,<2.5``."""
    return SpecifierSet(f">={lowest},<{next_series(lowest)}")


def ranged(requirement: SpecifierSet) -> str:
    """A requirement as people write it, the lower bound first: ``>=2.4.1,<2.5``."""
    order = {">=": 0, ">": 0, "==": 1, "~=": 1, "!=": 2, "<=": 3, "<": 3}
    parts = sorted(requirement, key=lambda part: (order.get(part.operator, 4), str(part)))
    return ",".join(map(str, parts))


def allowed_pythons(range_: SpecifierSet, pythons: Iterable[Version]) -> tuple[Version, ...]:
    """Those Python series of which ``range_`` allows some patch release, in order.

    A series is asked for with its first and with a far patch, so that ``>=3.10.4`` allows 3.10.
    """
    return tuple(
        python
        for python in sorted(set(pythons))
        if any(range_.contains(f"{python}.{patch}") for patch in (0, 99))
    )


@total_ordering
@dataclass(frozen=True, slots=True)
class DriverVersion:
    """An NVIDIA driver release, spelt as NVIDIA spells it (``520.61.05``), compared by number."""

    text: str
    numbers: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not _DRIVER.fullmatch(self.text):
            raise ValueError(f"{self.text!r} is not a driver version such as 520.61.05")
        object.__setattr__(self, "numbers", tuple(int(part) for part in self.text.split(".")))

    def __lt__(self, other: DriverVersion) -> bool:
        return self.numbers < other.numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DriverVersion) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __str__(self) -> str:
        return self.text
