"""The cells of a matrix: each variant with each of its torch pins, by an identifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.specifiers import Specifier, SpecifierSet

from wheelfab import facts
from wheelfab.errors import UsageError
from wheelfab.facts import AbiKind
from wheelfab.model import Matrix, Pin, Profile, Project, Variant, cell_id, local_version
from wheelfab.suggest import did_you_mean, listed
from wheelfab.versions import allowed_pythons, next_series


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One wheel of the matrix, or its debug twin. ``id`` is printed and looked up, never parsed."""

    id: str
    variant: Variant
    pin: Pin
    profile: Profile = Profile.RELEASE

    @property
    def name(self) -> str:
        """What it is called on a command line: its identifier without the profile."""
        return cell_id(self.variant.name, self.pin)

    @property
    def local_version(self) -> str:
        """The local part of the wheel's version: ``cu121.torch2.4``."""
        return local_version(self.variant.name, self.pin, self.profile)

    @property
    def requires_python(self) -> SpecifierSet:
        """The Pythons of the row that have the torch of the pin.

        A series ends with the newest Python that its releases have; the stable ABI goes on with
        later releases, so that only the oldest Python is bounded.
        """
        return pythons_of(self.variant, self.pin)


@dataclass(frozen=True, kw_only=True, slots=True)
class Excluded:
    """A cell that is not built, and why; ``variant`` names its row, ``name`` is as a cell's."""

    id: str
    reason: str
    variant: str = ""
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """All cells of a matrix in the order of its rows, and those that it excludes."""

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]


def expand(matrix: Matrix, profile: Profile = Profile.RELEASE) -> Expansion:
    """Every variant with every one of its pins, except those that the matrix excludes.

    With ``Profile.DEBUG`` these are the debug twins, in the same order.
    """
    reasons = {(entry.variant, entry.torch): entry.reason for entry in matrix.exclude}
    cells: list[Cell] = []
    excluded: list[Excluded] = []
    for variant in matrix.variants:
        for key in variant.torch:
            pin = matrix.pins[key]
            identifier = cell_id(variant.name, pin, profile)
            reason = reasons.get((variant.name, key))
            if reason is None:
                cells.append(Cell(id=identifier, variant=variant, pin=pin, profile=profile))
                continue
            name = cell_id(variant.name, pin)
            excluded.append(Excluded(id=identifier, reason=reason, variant=variant.name, name=name))
    return Expansion(cells=tuple(cells), excluded=tuple(excluded))


def select(expansion: Expansion, names: Sequence[str]) -> tuple[Cell, ...]:
    """The cells that ``names`` (variants' names or cells' identifiers) stand for; all for none.

    Raises ``UsageError`` for a name of neither, and for a cell that the matrix excludes.
    """
    if not names:
        return expansion.cells
    wanted: set[str] = set()
    for name in names:
        wanted |= _cells_named(expansion, name)
    return tuple(cell for cell in expansion.cells if cell.id in wanted)


def size_budget(cell: Cell, project: Project) -> int:
    """The most bytes that a cell's wheel may have; a debug twin may have more than its release."""
    extra = project.debug.extra_size if cell.profile is Profile.DEBUG else 0
    return cell.variant.size_budget + extra


def pythons_of(variant: Variant, pin: Pin) -> SpecifierSet:
    """The Pythons that a cell's wheel is for, as ``Requires-Python`` has it."""
    releases = [release for release in facts.torch_releases() if release.version in pin.requirement]
    pythons = sorted({python for release in releases for python in release.pythons})
    if not pythons:
        return variant.python
    everywhere = sorted(
        {python for release in facts.torch_releases() for python in release.pythons}
    )
    row = allowed_pythons(variant.python, (*everywhere, next_series(everywhere[-1])))
    bounds = list(variant.python)
    if row and row[0] < pythons[0]:
        bounds = [bound for bound in bounds if bound.operator not in (">", ">=")]
        bounds.append(Specifier(f">={pythons[0]}"))
    if row and row[-1] > pythons[-1] and pin.kind is AbiKind.CLASSIC:
        bounds = [bound for bound in bounds if bound.operator not in ("<", "<=")]
        bounds.append(Specifier(f"<{next_series(pythons[-1])}"))
    return SpecifierSet(",".join(map(str, bounds)))


def _cells_named(expansion: Expansion, name: str) -> set[str]:
    found = {cell.id for cell in expansion.cells if name in (cell.id, cell.name, cell.variant.name)}
    if found:
        return found
    for entry in expansion.excluded:
        if name in (entry.id, entry.name):
            raise UsageError(f"{name} is excluded: {entry.reason}", where="matrix.toml: exclude")
        if entry.variant == name:
            raise UsageError(f"every cell of {name} is excluded", where="matrix.toml: exclude")
    variants = tuple(dict.fromkeys(cell.variant.name for cell in expansion.cells))
    known = (*variants, *(cell.name for cell in expansion.cells))
    hint = did_you_mean(name, known)
    if hint.startswith("known"):
        hint = f"variants: {listed(variants)}; or a cell such as {expansion.cells[0].name}"
    raise UsageError(f"unknown variant or cell {name[:60]!r}", next_step=hint)
