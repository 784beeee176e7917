"""The records that ``matrix.toml`` becomes: project, torch pins, variants, exclusions, matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab.arch import Arch
from wheelfab.facts import AbiKind, RowKind
from wheelfab.host import Host
from wheelfab.versions import series_requirement


class CudaApi(StrEnum):
    """How the extension reaches CUDA: it opens libcuda at run time, or links the CUDA runtime."""

    DRIVER = "driver"
    RUNTIME = "runtime"


class Toolchain(StrEnum):
    """Where the device compiler comes from."""

    PYPI_NVRTC = "pypi-nvrtc"
    PYPI_NVCC = "pypi-nvcc"


class Profile(StrEnum):
    """How the host compiler is told to compile: to be used, or to be looked into (the twin)."""

    RELEASE = "release"
    DEBUG = "debug"


class PartScope(StrEnum):
    """How often a part is compiled: once, once a variant, or once a torch pin."""

    PROJECT = "project"
    VARIANT = "variant"
    TORCH = "torch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """A torch pin: an exact series (classic ABI), or a release and all later ones (stable ABI).

    ``key`` is its name in ``matrix.toml``; ``lowest`` the oldest release that the wheel allows;
    ``headers`` the release that it is built against; ``run_on`` the releases it is loaded with.
    """

    key: str
    kind: AbiKind
    series: Version
    lowest: Version
    headers: Version
    run_on: tuple[Version, ...]

    @property
    def name(self) -> str:
        """Its part of a cell's identifier and of the local version: ``torch2.4``."""
        return f"torch{self.series}"

    @property
    def requirement(self) -> SpecifierSet:
        """What the wheel asks of torch: ``>=2.4.1,<2.5``, or ``>=2.10`` for the stable ABI."""
        if self.kind is AbiKind.STABLE:
            return SpecifierSet(f">={self.series}")
        return series_requirement(self.lowest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A row of the matrix with all defaults filled in. ``arch`` is empty without ``cuda``."""

    name: str
    cuda: Version | None
    arch: tuple[Arch, ...]
    cuda_api: CudaApi
    toolchain: Toolchain
    torch: tuple[str, ...]
    torch_index: str
    torch_fallback: str | None
    python: SpecifierSet
    glibc: Version
    platform: str
    size_budget: int

    @property
    def kind(self) -> RowKind:
        """The kind of row that it is, for the rules of legality."""
        if self.cuda is None:
            return RowKind.CPU
        return RowKind(self.cuda_api.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One library that CMake compiles, the parts (or ``device``) that it links, its input files."""

    name: str
    per: PartScope
    uses: tuple[str, ...]
    inputs: tuple[str, ...]
    defines: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The device code: source globs, include folders, C++ standard."""

    sources: tuple[str, ...]
    include: tuple[str, ...]
    standard: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Debug:
    """The debug twins: flags of the host compiler, and the bytes that they may add to a wheel."""

    flags: tuple[str, ...]
    extra_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadStage:
    """One stage of a load in the import loop: Python code, timed and judged by itself."""

    stage: str
    run: str
    needs_torch: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRun:
    """What the GPU loop runs on each device, as Python code.

    ``operation`` checks an operation against its reference on the device ``device`` (``cuda:0``),
    ``launch`` is one launch of the soak. ``emulation`` is a script that lets both run without a
    GPU, ``None`` where there is none.
    """

    operation: str
    launch: str
    emulation: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """What is built, whatever the variant. ``size_budget`` is in bytes.

    ``state`` is Python code that leaves in ``result`` what the extension says of the hardware,
    ``doctor`` the arguments of Python for a command that reports on it.
    """

    name: str
    python: SpecifierSet
    python_tag: str
    glibc: Version
    platform: str
    size_budget: int
    cmake: str
    sources: tuple[str, ...]
    device: Device | None
    debug: Debug
    parts: tuple[Part, ...]
    load: tuple[LoadStage, ...]
    state: str | None = None
    doctor: tuple[str, ...] = ()
    device_run: DeviceRun | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Exclusion:
    """A cell that is not built, by its variant's name and its pin's key, and why."""

    variant: str
    torch: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A nox session of the project's own. ``wheel`` is the identifier of a cell."""

    help: str
    wheel: str | None
    torch: Version | None
    requirements: tuple[str, ...]
    run: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """``matrix.toml``, complete and legal. ``root`` is the folder that it lies in."""

    root: Path
    project: Project
    pins: Mapping[str, Pin]
    variants: tuple[Variant, ...]
    exclude: tuple[Exclusion, ...]
    sessions: Mapping[str, Session]
    hosts: tuple[Host, ...] = ()


def cell_id(variant: str, pin: Pin, profile: Profile = Profile.RELEASE) -> str:
    """The identifier of a cell: ``cu121-torch2.4``, its twin's ``cu121-torch2.4-debug``."""
    return "-".join((variant, pin.name, *_marks(profile)))


def local_version(variant: str, pin: Pin, profile: Profile = Profile.RELEASE) -> str:
    """The local version of a cell's wheel: ``cu121.torch2.4``, its twin's ``cu121.torch2.4.debug``.

    A twin's version is above its release's: an index must never hold both.
    """
    return ".".join((variant, pin.name, *_marks(profile)))


def _marks(profile: Profile) -> tuple[str, ...]:
    return () if profile is Profile.RELEASE else (profile.value,)
