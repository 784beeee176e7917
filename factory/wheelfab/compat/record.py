"""The record of what runs where: a row a wheel, with a verdict for each value of each axis.

The cross product is not stored: ``wheelfab.compat.verdict`` joins a row's entries, and the page
does the same in JavaScript.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from packaging.version import Version

from wheelfab.arch import Code
from wheelfab.build import CellState

SCHEMA = 2


class Answer(StrEnum):
    """Whether a wheel works somewhere."""

    WORKS = "works"
    NO = "no"
    UNTESTED = "untested"


class By(StrEnum):
    """What an answer rests on: loads that were made, the symbol atlas, METADATA and tags."""

    LOOP = "loop"
    ATLAS = "atlas"
    METADATA = "metadata"


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchEntry:
    """A wheel on a torch release, and what of that release a verdict needs.

    ``pythons_seen`` and ``glibcs_seen`` are those that loads of exactly this wheel ran with.
    ``pythons`` are those that the release has a wheel for (empty: not known), ``glibc`` what it
    asks for, ``driver`` the oldest Linux driver of any of its CUDA builds; there may be more builds
    than are known unless ``builds_complete``.
    """

    torch: str
    answer: Answer
    by: By | None
    reason: str
    pythons_seen: tuple[str, ...]
    glibcs_seen: tuple[str, ...]
    pythons: tuple[str, ...]
    glibc: str | None
    driver: str | None
    builds_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonEntry:
    """A wheel on a Python series (``3.12``, ``3.14t`` without the lock), by METADATA and tags."""

    python: str
    answer: Answer
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuEntry:
    """A wheel on a compute capability, by its images and CUDA's rules.

    ``driver`` is the oldest Linux driver for that image, ``None`` where it is not known.
    ``measured`` only where an operation ran by that image on such a device.
    """

    capability: str
    code: Code | None
    arch: str | None
    driver: str | None
    reason: str
    measured: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class HostsEntry:
    """How the wheel did on the hosts of the matrix: those not as expected are named."""

    passed: int
    failed: tuple[str, ...]
    not_run: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """The audit of the wheel: its verdict and the errors that it found."""

    verdict: str
    errors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelRow:
    """A wheel: what its bytes and METADATA say, and an entry for each value of each axis.

    ``archs`` are those read from its fatbins, ``glibcxx`` the newest version that its libraries
    want of libstdc++ (``3.4.22``), ``None`` where they want none. ``driver_cubin`` and
    ``driver_ptx`` are the oldest Linux drivers that load its cubins and compile its PTX, ``None``
    where that is not known or not needed. ``run_on`` are the torch releases that its pin promises,
    ``page`` its index, ``install`` the line for pip. ``hosts`` and ``audit`` are ``None`` where
    there was neither.
    """

    cell: str
    file: str
    version: str
    sha256: str
    size: int
    cuda: str | None
    archs: tuple[str, ...]
    requires_torch: str
    abi: str
    requires_python: str
    tags: tuple[str, ...]
    glibc: str | None
    glibcxx: str | None
    driver_cubin: str | None
    driver_ptx: str | None
    run_on: tuple[str, ...]
    page: str
    install: str
    torch: tuple[TorchEntry, ...]
    pythons: tuple[PythonEntry, ...]
    gpus: tuple[GpuEntry, ...]
    hosts: HostsEntry | None
    audit: AuditEntry | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuName:
    """A compute capability of the axis, by its architecture and some GPUs that have it."""

    capability: str
    architecture: str
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverName:
    """A Linux driver of the axis, and the CUDA release that it came with or is enough for."""

    driver: str
    cuda: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """The values that a person can pick from, oldest first. A driver may be any other, too."""

    torch: tuple[str, ...]
    python: tuple[str, ...]
    glibc: tuple[str, ...]
    gpu: tuple[GpuName, ...]
    driver: tuple[DriverName, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    """A cell of the matrix without a wheel, and why."""

    cell: str
    state: CellState
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FactsDates:
    """The months in which the facts behind the rules were collected."""

    cuda: str
    torch: str
    gpus: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CompatTable:
    """All wheels, what can be picked, and the cells without a wheel.

    ``index_url`` is where the index is served, ``None`` where nobody said: the install lines then
    have a placeholder.
    """

    schema: int
    project: str
    facts_as_of: FactsDates
    index_url: str | None
    axes: Axes
    wheels: tuple[WheelRow, ...]
    absent: tuple[Absent, ...]

    @property
    def releases(self) -> tuple[str, ...]:
        """The torch releases that a pin promises or that a load was made with, oldest first."""
        seen = {
            entry.torch
            for row in self.wheels
            for entry in row.torch
            if entry.torch in row.run_on or entry.by is By.LOOP
        }
        return tuple(sorted(seen, key=Version))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities of the axis, oldest first."""
        return tuple(item.capability for item in self.axes.gpu)
