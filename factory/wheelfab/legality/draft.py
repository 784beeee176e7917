"""The matrix before it is known to be legal: rows with the places that their values come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wheelfab.arch import Arch
from wheelfab.matrix_reader import key_path
from wheelfab.model import Exclusion, Pin, Project, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Flaw:
    """What a rule found: where, what, the nearest legal choice, and whose word it is."""

    where: str
    what: str
    next_step: str
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A variant and where each of its values is written.

    ``own`` are the keys that its own table has, ``inherited`` those from ``[defaults]``; the others
    come from the project or are built in. ``archs`` are its arch entries, each with the place of
    its text. ``doubtful`` are keys whose value may only be absent because a flaw hides it: no rule
    judges by them. ``pins`` are its torch pins that exist, by their index in the list.
    """

    variant: Variant
    project: Project
    own: frozenset[str]
    inherited: frozenset[str]
    archs: tuple[tuple[str, Arch], ...]
    pins: tuple[tuple[int, Pin], ...]
    doubtful: frozenset[str] = field(default_factory=frozenset)

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.variant.name

    @property
    def place(self) -> str:
        """The place of its table: ``variants.cu118``."""
        return key_path(("variants", self.name))

    def at(self, key: str, *rest: str | int) -> str:
        """The place of a value as the row sees it: ``variants.cu118.arch[3] (from defaults)``."""
        place = key_path(("variants", self.name, key, *rest))
        if key in self.own:
            return place
        if key in self.inherited:
            return f"{place} (from defaults)"
        return f"{place} (from project)" if key in PROJECT_KEYS else place

    def origin(self, key: str, *rest: str | int) -> str:
        """The place where a value is written: ``defaults.arch[3]``, ``project.python``."""
        if key in self.own:
            return key_path(("variants", self.name, key, *rest))
        if key in self.inherited:
            return key_path(("defaults", key, *rest))
        return key_path(("project", key, *rest))


@dataclass(frozen=True, kw_only=True, slots=True)
class PinDraft:
    """A torch pin and the keys that its table has."""

    pin: Pin
    own: frozenset[str]

    def at(self, *rest: str | int) -> str:
        """The place of one of its values: ``torch."2.4".run-on[0]``."""
        return key_path(("torch", self.pin.key, *rest))


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """All that the rules look at. ``broken`` names tables with a flaw, as ``Reading`` does."""

    project: Project
    pins: Mapping[str, PinDraft]
    rows: tuple[Row, ...]
    exclude: tuple[tuple[int, Exclusion], ...]
    broken: frozenset[tuple[str, ...]]


PROJECT_KEYS = frozenset({"python", "glibc", "platform", "size-budget"})
