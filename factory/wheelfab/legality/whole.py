"""Rules for what all rows share: the project's parts, the exclusions, the order of versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from packaging.version import Version

from wheelfab.legality.draft import Draft, Flaw, PinDraft, Row
from wheelfab.matrix_reader import key_path
from wheelfab.model import Part, PartScope, cell_id, local_version
from wheelfab.suggest import did_you_mean

_PART = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_DEFINE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_OFTEN = {
    PartScope.PROJECT: "once for the project",
    PartScope.VARIANT: "once a variant",
    PartScope.TORCH: "once a torch pin",
}


def parts(draft: Draft) -> Iterator[Flaw]:
    """Rule ``parts``."""
    if ("project",) in draft.broken:
        return
    known = {part.name: part for part in draft.project.parts}
    for part in known.values():
        yield from _part_names(part)
        for at, use in enumerate(part.uses):
            place = key_path(("project", "parts", part.name, "uses", at))
            yield from _use(draft, part, use, known, place)
    yield from _circle(known)


def load_stages(draft: Draft) -> Iterator[Flaw]:
    """Rule ``load-stages``."""
    seen: set[str] = set()
    for at, stage in enumerate(draft.project.load):
        if stage.stage in seen:
            yield Flaw(
                where=key_path(("project", "load", at, "stage")),
                what=f"{stage.stage!r} is there twice",
                next_step="give it another name",
            )
        seen.add(stage.stage)


def pin_names(draft: Draft) -> Iterator[Flaw]:
    """Rule ``cell-once``, for pins of which one row would make the same cell."""
    seen: dict[str, PinDraft] = {}
    for pin in draft.pins.values():
        first = seen.setdefault(pin.pin.name, pin)
        if first is not pin:
            yield Flaw(
                where=pin.at(),
                what=f"is called {pin.pin.name} in cells and versions, and so is {first.pin.key!r}",
                next_step="take one of them out",
            )


def exclusion(draft: Draft) -> Iterator[Flaw]:
    """Rule ``exclusion``."""
    rows = {row.name: row for row in draft.rows}
    seen: dict[tuple[str, str], int] = {}
    for at, entry in draft.exclude:
        row = rows.get(entry.variant)
        if row is None:
            if ("variants", entry.variant) not in draft.broken:
                yield Flaw(
                    where=key_path(("exclude", at, "variant")),
                    what=f"unknown variant {entry.variant[:60]!r}",
                    next_step=did_you_mean(entry.variant, rows),
                )
            continue
        keys = row.variant.torch
        if entry.torch not in keys and "torch" not in row.doubtful:
            yield Flaw(
                where=key_path(("exclude", at, "torch")),
                what=f"{entry.variant} has no pin {entry.torch[:60]!r}",
                next_step=did_you_mean(entry.torch, keys),
            )
        first = seen.setdefault((entry.variant, entry.torch), at)
        if first != at:
            yield Flaw(
                where=key_path(("exclude", at)),
                what=f"excludes the same cell as exclude[{first}]",
                next_step="take one of them out",
            )
    yield from _something_left(draft, set(seen))


def local_version_order(draft: Draft) -> Iterator[Flaw]:
    """Rule ``local-version-order``: rows with CUDA among each other, and the pins of each row."""
    rows = [row for row in draft.rows if row.variant.cuda is not None]
    for row in rows:
        for newer in rows:
            if _cuda(row) < _cuda(newer) and _sorts_after(row.name, newer.name):
                yield Flaw(
                    where=row.place,
                    what=f"its wheels (CUDA {_cuda(row)}) would outrank those of {newer.name} "
                    f"(CUDA {_cuda(newer)}), since +{row.name} sorts after +{newer.name}",
                    next_step="name the rows so that they sort as their CUDA releases do",
                )
                break
    for row in draft.rows:
        for at, pin in row.pins:
            for _, newer_pin in row.pins:
                mine, other = (local_version(row.name, each) for each in (pin, newer_pin))
                if pin.series < newer_pin.series and _sorts_after(mine, other):
                    yield Flaw(
                        where=row.origin("torch", at),
                        what=f"+{mine} sorts after +{other}",
                        next_step="build them as two projects",
                    )


def _part_names(part: Part) -> Iterator[Flaw]:
    if not _PART.fullmatch(part.name) or part.name == "device":
        yield Flaw(
            where=key_path(("project", "parts", part.name)),
            what=f"{part.name[:60]!r} cannot be a part's name",
            next_step="use a lower-case word other than device",
        )
    for name in part.defines:
        if not _DEFINE.fullmatch(name) or name.startswith("WHEELFAB_"):
            yield Flaw(
                where=key_path(("project", "parts", part.name, "defines", name)),
                what=f"{name[:60]!r} cannot be defined here",
                next_step="use a CMake variable of your own; WHEELFAB_ names are taken",
            )


def _use(
    draft: Draft, part: Part, use: str, known: Mapping[str, Part], place: str
) -> Iterator[Flaw]:
    """One entry of ``uses``: it must exist and be compiled no more often than ``part``."""
    if use == "device":
        if draft.project.device is None:
            hint = "add [project.device], or take it out"
            yield Flaw(where=place, what="there is no device code", next_step=hint)
        elif part.per is not PartScope.VARIANT:
            yield Flaw(
                where=place,
                what=f"device images belong to a variant, and {part.name} is compiled "
                f"{_OFTEN[part.per]}",
                next_step='set per = "variant"',
            )
    elif use not in known:
        yield Flaw(
            where=place,
            what=f"unknown part {use[:60]!r}",
            next_step=did_you_mean(use, (*known, "device")),
        )
    elif known[use].per not in (PartScope.PROJECT, part.per):
        yield Flaw(
            where=place,
            what=f"{use} is compiled {_OFTEN[known[use].per]}, and {part.name} {_OFTEN[part.per]}",
            next_step=f'set per = "{known[use].per}" for {part.name}, or take it out',
        )


def _circle(known: Mapping[str, Part]) -> Iterator[Flaw]:
    """A circle of uses, if there is one."""
    graph = {
        name: [use for use in part.uses if use in known and known[use].per is part.per]
        for name, part in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        yield Flaw(
            where=key_path(("project", "parts", circle[0], "uses")),
            what=f"goes in a circle: {' -> '.join(circle)}",
            next_step="let one of them stand alone",
        )


def _something_left(draft: Draft, excluded: set[tuple[str, str]]) -> Iterator[Flaw]:
    cells = {(row.name, pin.key) for row in draft.rows for _, pin in row.pins}
    if cells and cells <= excluded and not draft.broken:
        some = sorted(cell_id(row.name, pin) for row in draft.rows for _, pin in row.pins)
        yield Flaw(
            where="exclude",
            what="no cell is left to build",
            next_step=f"keep one, such as {some[0]}",
        )


def _cuda(row: Row) -> Version:
    return row.variant.cuda or Version("0")


def _sorts_after(one: str, other: str) -> bool:
    """Whether ``packaging`` sorts the local version ``one`` after ``other``."""
    try:
        return Version(f"0+{one}") > Version(f"0+{other}")
    except ValueError:
        return False
