"""The table itself: wheels against torch releases (looped) and GPUs (computed from rules)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from wheelfab import facts
from wheelfab.arch import Arch, Code, cubin_runs_on, parse_entry, ptx_runs_on
from wheelfab.build import CellState
from wheelfab.compat.cells import CellWheel, built_wheels
from wheelfab.compat.outcomes import Outcome, read_outcomes
from wheelfab.errors import FormatError
from wheelfab.wheel import Wheel

if TYPE_CHECKING:
    from wheelfab.variant import Cell, Excluded

SCHEMA = 1
_OLDEST_GPU = (7, 0)
# Tegra: no x86_64 machine has one, and cubins of desktop GPUs are not promised to run there.
# Source: CUDA Programming Guide, binary compatibility.
_TEGRA = frozenset({"5.3", "6.2", "7.2", "8.7", "11.0"})


class Verdict(StrEnum):
    """What is known of a wheel on a torch release. Only a loop can say ``works`` or ``fails``."""

    WORKS = "works"
    FAILS = "fails"
    REFUSED = "refused"
    UNTESTED = "untested"


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelRow:
    """A wheel: what its bytes and METADATA say.

    ``archs`` are those read from its fatbins; ``driver_cubin`` and ``driver_ptx`` the oldest Linux
    drivers that load its cubins and compile its PTX, ``None`` where that is not known or not
    needed.
    """

    cell: str
    file: str
    sha256: str
    size: int
    cuda: str | None
    archs: tuple[str, ...]
    torch: str
    abi: str
    python: str
    tags: tuple[str, ...]
    glibc: str | None
    driver_cubin: str | None
    driver_ptx: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchEntry:
    """A wheel on a torch release: the verdict, and in words what it rests on."""

    cell: str
    torch: str
    verdict: Verdict
    text: str
    python: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuEntry:
    """A wheel on a compute capability, computed from the arch rules, never run on a device."""

    cell: str
    capability: str
    code: Code | None
    arch: str | None
    driver: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    """A cell of the matrix without a wheel, and why."""

    cell: str
    state: CellState
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CompatTable:
    """Wheels against their facts, torch releases and GPUs, and the cells that have no wheel."""

    schema: int
    facts_as_of: str
    wheels: tuple[WheelRow, ...]
    torch: tuple[TorchEntry, ...]
    gpus: tuple[GpuEntry, ...]
    absent: tuple[Absent, ...]

    @property
    def releases(self) -> tuple[str, ...]:
        """The torch releases that the table speaks of, oldest first."""
        return tuple(sorted({entry.torch for entry in self.torch}, key=Version))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities that the table speaks of, oldest first."""
        return tuple(sorted({entry.capability for entry in self.gpus}, key=Version))


def tabulate(root: Path, cells: Sequence[Cell], excluded: Sequence[Excluded]) -> CompatTable:
    """The table of what lies in ``dist/``, ``build/<cell>/`` and ``build/loops/`` under ``root``.

    Raises ``FormatError`` when a record cannot be read.
    """
    built = built_wheels(root, cells)
    present = [(cell, item.wheel) for cell, item in zip(cells, built, strict=True) if item.wheel]
    outcomes = {cell.id: read_outcomes(root, cell.id) for cell, _ in present}
    releases = _releases((cell for cell, _ in present), outcomes.values())
    rows = tuple(_row(cell.id, wheel) for cell, wheel in present)
    return CompatTable(
        schema=SCHEMA,
        facts_as_of=facts.as_of("cuda"),
        wheels=rows,
        torch=tuple(
            _torch_entry(cell.id, wheel, release, outcomes[cell.id])
            for cell, wheel in present
            for release in releases
        ),
        gpus=tuple(_gpu_entry(row, number) for row in rows for number in _gpus()),
        absent=(*_without_wheel(built), *_excluded(excluded)),
    )


def _without_wheel(built: Iterable[CellWheel]) -> Iterable[Absent]:
    for item in built:
        if item.wheel is None:
            yield Absent(cell=item.cell, state=item.state, reason=item.reason)


def _excluded(excluded: Iterable[Excluded]) -> Iterable[Absent]:
    for item in excluded:
        yield Absent(cell=item.id, state=CellState.SKIPPED, reason=item.reason)


def _releases(cells: Iterable[Cell], outcomes: Iterable[Sequence[Outcome]]) -> tuple[Version, ...]:
    """Every torch release that a pin promises to run on, or that a loop has tried."""
    promised = {release for cell in cells for release in cell.pin.run_on}
    tried = {outcome.torch for several in outcomes for outcome in several}
    return tuple(sorted({Version(release.public) for release in promised | tried}))


def _row(cell: str, wheel: Wheel) -> WheelRow:
    build = wheel.build or {}
    cuda = build.get("cuda")
    release = facts.cuda_release(Version(str(cuda))) if cuda else None
    archs = tuple(str(arch) for arch in build.get("archs", ()))
    has_ptx = any(arch.endswith("+PTX") for arch in archs)
    ptx_floor = release.toolkit_floor if release and has_ptx else None
    torch = build.get("torch") or {}
    need = wheel.requirement("torch")
    return WheelRow(
        cell=cell,
        file=wheel.file,
        sha256=wheel.sha256,
        size=wheel.size,
        cuda=str(cuda) if cuda else None,
        archs=archs,
        torch=str(need.specifier) if need else "any",
        abi=str(torch.get("abi", "unknown")),
        python=str(wheel.requires_python or "any"),
        tags=tuple(sorted(str(tag) for tag in wheel.tags)),
        glibc=_glibc(wheel),
        driver_cubin=str(release.family_floor) if release else None,
        driver_ptx=str(ptx_floor) if ptx_floor else None,
    )


def _glibc(wheel: Wheel) -> str | None:
    """The lowest glibc that a manylinux tag of the wheel promises to be enough."""
    levels = [
        Version(f"{parts[1]}.{parts[2]}")
        for tag in wheel.tags
        if tag.platform.startswith("manylinux_") and len(parts := tag.platform.split("_")) > 3
    ]
    return str(min(levels)) if levels else None


def _torch_entry(
    cell: str, wheel: Wheel, release: Version, outcomes: Sequence[Outcome]
) -> TorchEntry:
    """What the loop of exactly these bytes said; else whether METADATA allows the release."""
    name = str(release)
    mine = [o for o in outcomes if o.torch.public == name and o.sha256 == wheel.sha256]
    for outcome in mine:
        if outcome.passed is not None:
            verdict = Verdict.WORKS if outcome.passed else Verdict.FAILS
            return TorchEntry(
                cell=cell, torch=name, verdict=verdict, text=outcome.text, python=outcome.python
            )
    need = wheel.requirement("torch")
    if need is not None and not need.specifier.contains(release, prereleases=True):
        text = f"requires torch {need.specifier}"
        return TorchEntry(cell=cell, torch=name, verdict=Verdict.REFUSED, text=text)
    text = mine[0].text if mine else "no loop of this wheel was run"
    return TorchEntry(cell=cell, torch=name, verdict=Verdict.UNTESTED, text=text)


def _gpus() -> tuple[str, ...]:
    """The capabilities to compute for: every GPU the facts name from Volta on, but Tegra."""
    recent = (number for number in facts.gpus() if _capability(number) >= _OLDEST_GPU)
    return tuple(number for number in recent if number not in _TEGRA)


def _capability(number: str) -> tuple[int, int]:
    major, _, minor = number.partition(".")
    return int(major), int(minor)


def _gpu_entry(row: WheelRow, number: str) -> GpuEntry:
    capability = _capability(number)
    cubins, ptx = _images(row)
    fitting = [arch for arch in cubins if cubin_runs_on(arch, capability)]
    code, driver = Code.CUBIN, row.driver_cubin
    if not fitting:
        fitting = [arch for arch in ptx if ptx_runs_on(arch, capability)]
        code, driver = Code.PTX, row.driver_ptx
    if not fitting:
        return GpuEntry(cell=row.cell, capability=number, code=None, arch=None, driver=None)
    best = max(fitting, key=lambda arch: (arch.capability, arch.suffix))
    return GpuEntry(cell=row.cell, capability=number, code=code, arch=best.target, driver=driver)


def _images(row: WheelRow) -> tuple[list[Arch], list[Arch]]:
    """The cubins and the PTX inside a wheel; in its list ``9.0`` is a cubin, ``9.0+PTX`` PTX."""
    archs = [
        arch for text in row.archs for arch in parse_entry(text, where=row.file, error=FormatError)
    ]
    return [arch for arch in archs if not arch.ptx], [arch for arch in archs if arch.ptx]
