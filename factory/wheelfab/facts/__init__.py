"""Dated facts with their sources: CUDA releases, torch releases, GPUs, the rules of legality.

The data lie beside this file as TOML; the functions here give them typed, read once. What is not
known is ``None`` or absent, never guessed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab.versions import DriverVersion, series

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease:
    """One CUDA release. ``archs`` are spelt as in an arch list (``9.0a``), oldest first.

    ``family_floor`` is the oldest Linux driver that loads its cubins (minor-version compatibility);
    ``toolkit_floor`` the oldest that compiles its PTX, ``None`` where that is not known. gcc from
    major number ``gcc_min`` to ``gcc_max`` is what its nvcc accepts as host compiler.
    """

    version: Version
    archs: tuple[str, ...]
    gcc_min: int
    gcc_max: int
    family_floor: DriverVersion
    toolkit_floor: DriverVersion | None
    archs_source: str
    gcc_source: str
    driver_source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRelease:
    """One torch release. ``cuda`` lists the CUDA releases that it was built for, beside the CPU.

    Where ``cuda_complete`` is false, there may be builds that are not listed. ``cxx11_abi`` is the
    C++ ABI of its x86_64 builds but those in ``cxx11_abi_differs``; ``glibc`` the level that its
    wheels on PyPI ask for; ``cxx`` the C++ standard that its ATen headers want; ``gcc_min`` the
    oldest gcc that compiles them, where that is known.
    """

    version: Version
    cuda: tuple[Version, ...]
    cuda_complete: bool
    pypi_cuda: Version
    pythons: tuple[Version, ...]
    free_threaded: tuple[str, ...]
    cxx11_abi: bool
    cxx11_abi_differs: tuple[Version, ...]
    glibc: Version
    cxx: str
    gcc_min: Version | None
    cuda_source: str
    python_source: str
    cxx11_abi_source: str
    glibc_source: str
    cxx_source: str

    @property
    def series(self) -> Version:
        """Its series: 2.4 of 2.4.1."""
        return series(self.version)

    @property
    def manylinux(self) -> str:
        """The platform level of its wheels: ``manylinux_2_28``."""
        return f"manylinux_{self.glibc.major}_{self.glibc.minor}"

    def cxx11_abi_for(self, cuda: Version | None) -> bool:
        """The C++ ABI of its build for that CUDA release, or for the CPU."""
        return self.cxx11_abi is not (cuda in self.cxx11_abi_differs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A compute capability, by its architecture's name and some GPUs that have it."""

    capability: str
    architecture: str
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaLibrary:
    """A library of CUDA's. ``sonames``: each with the CUDA releases, by major, that it belongs to.

    ``distribution`` is its wheel's name without ``-cu12``, ``symbols`` a pattern of what it
    defines.
    """

    name: str
    distribution: str
    sonames: Mapping[str, tuple[int, ...]]
    symbols: str


class RowKind(StrEnum):
    """The kinds of row of a matrix: how the extension reaches CUDA, or that it does not."""

    CPU = "cpu"
    DRIVER = "driver"
    RUNTIME = "runtime"


class AbiKind(StrEnum):
    """The kinds of torch pin, by the ABI that the binding uses."""

    CLASSIC = "classic"
    STABLE = "stable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A rule of legality: the kinds of row and pin that it holds for, what it says, its source."""

    id: str
    rows: frozenset[RowKind]
    pins: frozenset[AbiKind]
    text: str
    source: str


@lru_cache
def cuda_releases() -> tuple[CudaRelease, ...]:
    """All known CUDA releases, oldest first."""
    data = _read("cuda")
    return tuple(
        _cuda_release(version, table, data["families"])
        for version, table in sorted(data["releases"].items(), key=lambda item: Version(item[0]))
    )


@lru_cache
def torch_releases() -> tuple[TorchRelease, ...]:
    """All known torch releases, oldest first."""
    releases = _read("torch")["releases"].items()
    return tuple(sorted((_torch_release(*item) for item in releases), key=lambda r: r.version))


def cuda_release(version: Version) -> CudaRelease | None:
    """That CUDA release, or ``None`` where it is not known."""
    return _cuda_by_version().get(version)


def torch_release(version: Version) -> TorchRelease | None:
    """That torch release, whatever its local part (``+cpu``), or ``None`` where it is not known."""
    return _torch_by_version().get(Version(version.public))


def torch_series(wanted: Version) -> tuple[TorchRelease, ...]:
    """The known releases of one series, oldest first."""
    return tuple(release for release in torch_releases() if release.series == wanted)


@lru_cache
def known_archs() -> tuple[str, ...]:
    """Every arch that some CUDA release compiles for, in the order of the releases."""
    return tuple(dict.fromkeys(arch for release in cuda_releases() for arch in release.archs))


def cuda_with(arch: str) -> tuple[CudaRelease, ...]:
    """The CUDA releases that compile for ``arch`` (spelt as in an arch list), oldest first."""
    return tuple(release for release in cuda_releases() if arch in release.archs)


@lru_cache
def renamed_archs() -> Mapping[str, str]:
    """Arch numbers that newer CUDA releases know under another number: 10.1 is 11.0."""
    return {old: table["to"] for old, table in _read("cuda")["renamed"].items()}


@lru_cache
def ptx_releases() -> Mapping[tuple[int, int], Version]:
    """The first CUDA release that writes each version of PTX."""
    table = _read("cuda")["ptx"]
    pairs = {isa.partition("."): release for isa, release in table.items() if isa != "source"}
    return {(int(major), int(minor)): Version(text) for (major, _, minor), text in pairs.items()}


@lru_cache
def arch_names() -> Mapping[str, str]:
    """Names that an arch list may hold (``Ampere``), with the list that each stands for."""
    return {name: text for name, text in _read("gpus")["names"].items() if name != "source"}


@lru_cache
def arch_families() -> Mapping[str, tuple[str, ...]]:
    """The capabilities that code for a family-specific target (``10.0f``: ``10.0``) runs on."""
    table = _read("gpus")["families"]
    return {target: tuple(runs) for target, runs in table.items() if target != "source"}


@lru_cache
def gpus() -> Mapping[str, Gpu]:
    """Known compute capabilities, by their number (``8.6``)."""
    return {
        number: Gpu(
            capability=number,
            architecture=table["architecture"],
            examples=tuple(table["examples"]),
        )
        for number, table in _read("gpus")["capabilities"].items()
        if number != "source"
    }


@lru_cache
def cuda_libraries() -> Mapping[str, CudaLibrary]:
    """CUDA's libraries, by the name before ``.so``; the driver is none of them."""
    return {
        name: CudaLibrary(
            name=name,
            distribution=table["distribution"],
            sonames={soname: tuple(majors) for soname, majors in table["sonames"].items()},
            symbols=table["symbols"],
        )
        for name, table in _read("libraries")["cuda"].items()
    }


def stable_abi_first() -> Version:
    """The oldest target of the LibTorch stable ABI."""
    return Version(_read("torch")["stable-abi"]["first"])


@lru_cache
def index_builds() -> Mapping[str, Version | None]:
    """PyTorch's own indexes, each with the CUDA release that it serves (``None``: CPU builds)."""
    table = _read("torch")["indexes"]
    cuda = {url: Version(version) for version, url in table["cuda"].items()}
    return {**cuda, **dict.fromkeys(table["cpu"])}


@lru_cache
def rules() -> Mapping[str, Rule]:
    """The rules of legality, by their identifiers."""
    return {
        identifier: Rule(
            id=identifier,
            rows=frozenset(map(RowKind, table["rows"])),
            pins=frozenset(map(AbiKind, table["pins"])),
            text=table["text"],
            source=table["source"],
        )
        for identifier, table in _read("rules")["rules"].items()
    }


def glibc_levels() -> tuple[Version, ...]:
    """The glibc releases that have a manylinux level, oldest first."""
    return tuple(Version(level) for level in _read("rules")["glibc"]["levels"])


def base_glibc(base: str) -> Version | None:
    """The glibc of a base of the hosts (``debian-12``), ``None`` where it is not known."""
    level = _read("rules")["glibc"]["bases"].get(base) if base != "source" else None
    return Version(level) if level else None


def glibc_source() -> str:
    """Who says which manylinux levels there are."""
    return str(_read("rules")["glibc"]["source"])


@lru_cache
def toolchain_cuda() -> Mapping[str, SpecifierSet]:
    """The CUDA releases that each toolchain can give."""
    return {
        name: SpecifierSet(table["cuda"]) for name, table in _read("rules")["toolchains"].items()
    }


def toolchain_source(name: str) -> str:
    """Who says which CUDA releases the toolchain ``name`` can give."""
    return str(_read("rules")["toolchains"][name]["source"])


def platforms() -> Mapping[str, bool]:
    """Known platforms, and whether wheels for them are built here."""
    return {name: bool(built) for name, built in _read("rules")["platforms"].items()}


def as_of(file: str) -> str:
    """The month in which the facts of ``cuda``, ``torch``, ``gpus`` or ``rules`` were collected."""
    return str(_read(file)["as-of"])


@lru_cache
def _read(name: str) -> Mapping[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


@lru_cache
def _cuda_by_version() -> Mapping[Version, CudaRelease]:
    return {release.version: release for release in cuda_releases()}


@lru_cache
def _torch_by_version() -> Mapping[Version, TorchRelease]:
    return {release.version: release for release in torch_releases()}


def _cuda_release(
    version: str, table: Mapping[str, Any], families: Mapping[str, str]
) -> CudaRelease:
    gcc_min, gcc_max = table["gcc"]
    return CudaRelease(
        version=Version(version),
        archs=tuple(table["archs"]),
        gcc_min=gcc_min,
        gcc_max=gcc_max,
        family_floor=DriverVersion(families[version.partition(".")[0]]),
        toolkit_floor=DriverVersion(table["driver"]) if "driver" in table else None,
        archs_source=table["archs-source"],
        gcc_source=table["gcc-source"],
        driver_source=table.get("driver-source", families["source"]),
    )


def _torch_release(version: str, table: Mapping[str, Any]) -> TorchRelease:
    return TorchRelease(
        version=Version(version),
        cuda=_versions(table["cuda"]),
        cuda_complete=table.get("cuda-complete", True),
        pypi_cuda=Version(table["pypi-cuda"]),
        pythons=_versions(table["python"]),
        free_threaded=tuple(table.get("free-threaded", ())),
        cxx11_abi=table["cxx11-abi"],
        cxx11_abi_differs=_versions(table.get("cxx11-abi-differs", ())),
        glibc=Version(table["glibc"]),
        cxx=table["cxx"],
        gcc_min=Version(table["gcc"]) if "gcc" in table else None,
        cuda_source=table["cuda-source"],
        python_source=table["python-source"],
        cxx11_abi_source=table["cxx11-abi-source"],
        glibc_source=table["glibc-source"],
        cxx_source=table["cxx-source"],
    )


def _versions(texts: list[str] | tuple[str, ...]) -> tuple[Version, ...]:
    return tuple(Version(text) for text in texts)
