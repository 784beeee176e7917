"""The table itself: what the wheels say, what was seen of them, and what can be picked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from wheelfab import facts
from wheelfab.build import CellState
from wheelfab.compat.axes import Said, gpu_entries, gpus, python_entry, pythons, torch_entry
from wheelfab.compat.cells import CellWheel, built_wheels
from wheelfab.compat.evidence import Sources, images_seen, read_hosts
from wheelfab.compat.floors import glibc_floor, glibcxx_floor
from wheelfab.compat.line import PLACEHOLDER, install_line
from wheelfab.compat.outcomes import read_outcomes
from wheelfab.compat.record import (
    SCHEMA,
    Absent,
    AuditEntry,
    Axes,
    CompatTable,
    DriverName,
    FactsDates,
    GpuName,
    HostsEntry,
    WheelRow,
)
from wheelfab.versions import DriverVersion, ranged
from wheelfab.wheel import Wheel

if TYPE_CHECKING:
    from wheelfab.variant import Cell, Excluded


def tabulate(
    root: Path,
    cells: Sequence[Cell],
    excluded: Sequence[Excluded],
    *,
    index_url: str | None = None,
    sources: Sources | None = None,
) -> CompatTable:
    """The table of what lies in ``dist/``, ``build/<cell>/`` and the reports under ``root``.

    ``index_url`` is where the index is served; ``sources`` are asked about each wheel.

    Raises ``FormatError`` when a record cannot be read.
    """
    asked = sources or Sources()
    built = built_wheels(root, cells)
    present = [
        _seen(root, cell, item.wheel, item.page, asked)
        for cell, item in zip(cells, built, strict=True)
        if item.wheel is not None
    ]
    releases = _releases(present)
    return CompatTable(
        schema=SCHEMA,
        project=present[0].wheel.name if present else "",
        facts_as_of=FactsDates(**{name: facts.as_of(name) for name in ("cuda", "torch", "gpus")}),
        index_url=index_url,
        axes=_axes(releases),
        wheels=tuple(_row(item, releases, index_url or PLACEHOLDER) for item in present),
        absent=(*_without_wheel(built), *_excluded(excluded)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """A wheel, and all that was seen and said of exactly its bytes."""

    cell: Cell
    wheel: Wheel
    page: str
    said: Said
    hosts: HostsEntry | None
    images: frozenset[str]
    audit: AuditEntry | None


def _seen(root: Path, cell: Cell, wheel: Wheel, page: str, sources: Sources) -> _Seen:
    hosts = read_hosts(root, cell.id, wheel)
    outcomes = (item for item in read_outcomes(root, cell.id) if item.sha256 == wheel.sha256)
    return _Seen(
        cell=cell,
        wheel=wheel,
        page=page,
        said=Said(outcomes=tuple(outcomes), hosts=hosts.loads, atlas=tuple(sources.atlas(wheel))),
        hosts=hosts.entry,
        images=images_seen(root, cell.id, wheel),
        audit=sources.audit(cell, wheel),
    )


def _releases(present: Sequence[_Seen]) -> tuple[Version, ...]:
    """Every torch release that is known, that a pin promises to run on, or that was tried."""
    known = {release.version for release in facts.torch_releases()}
    promised = {Version(one.public) for item in present for one in item.cell.pin.run_on}
    spoken = {release for item in present for release in item.said.releases}
    return tuple(sorted(known | promised | spoken))


def _axes(releases: Iterable[Version]) -> Axes:
    known = facts.gpus()
    return Axes(
        torch=tuple(map(str, releases)),
        python=pythons(),
        glibc=tuple(map(str, facts.glibc_levels())),
        gpu=tuple(
            GpuName(
                capability=number,
                architecture=known[number].architecture,
                examples=known[number].examples,
            )
            for number in gpus()
        ),
        driver=tuple(_drivers()),
    )


def _drivers() -> Iterable[DriverName]:
    """The floors of all CUDA families and releases, oldest first, each once."""
    named: dict[DriverVersion, str] = {}
    for release in facts.cuda_releases():
        named.setdefault(release.family_floor, f"any {release.version.major}.x")
        if release.toolkit_floor is not None:
            named[release.toolkit_floor] = str(release.version)
    for driver in sorted(named):
        yield DriverName(driver=str(driver), cuda=named[driver])


def _without_wheel(built: Iterable[CellWheel]) -> Iterable[Absent]:
    for item in built:
        if item.wheel is None:
            yield Absent(cell=item.cell, state=item.state, reason=item.reason)


def _excluded(excluded: Iterable[Excluded]) -> Iterable[Absent]:
    for item in excluded:
        yield Absent(cell=item.id, state=CellState.SKIPPED, reason=item.reason)


def _row(seen: _Seen, releases: Iterable[Version], url: str) -> WheelRow:
    wheel = seen.wheel
    build = wheel.build or {}
    cuda = str(build["cuda"]) if build.get("cuda") else None
    archs = tuple(str(arch) for arch in build.get("archs", ()))
    drivers = driver_floors(cuda, archs)
    need = wheel.requirement("torch")
    return WheelRow(
        cell=seen.cell.id,
        file=wheel.file,
        version=str(wheel.version),
        sha256=wheel.sha256,
        size=wheel.size,
        cuda=cuda,
        archs=archs,
        requires_torch=ranged(need.specifier) if need else "any",
        abi=str((build.get("torch") or {}).get("abi", "unknown")),
        requires_python=ranged(wheel.requires_python) if wheel.requires_python else "any",
        tags=tuple(sorted(str(tag) for tag in wheel.tags)),
        glibc=glibc_floor(wheel),
        glibcxx=glibcxx_floor(wheel),
        driver_cubin=drivers[0],
        driver_ptx=drivers[1],
        run_on=tuple(release.public for release in seen.cell.pin.run_on),
        page=seen.page,
        install=install_line(wheel.name, str(wheel.version), seen.page, url),
        torch=tuple(torch_entry(wheel, release, seen.said) for release in releases),
        pythons=tuple(python_entry(wheel, python) for python in pythons()),
        gpus=gpu_entries(archs, drivers, seen.images, wheel.file),
        hosts=seen.hosts,
        audit=seen.audit,
    )


def driver_floors(cuda: str | None, archs: Iterable[str]) -> tuple[str | None, str | None]:
    """The oldest Linux drivers for the cubins and for the PTX, as far as needed and known."""
    release = facts.cuda_release(Version(cuda)) if cuda else None
    if release is None:
        return None, None
    has_ptx = any(arch.endswith("+PTX") for arch in archs)
    ptx = release.toolkit_floor if has_ptx else None
    return str(release.family_floor), str(ptx) if ptx else None
