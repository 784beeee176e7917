"""Whom a library's needs belong to: the system, the wheel itself, torch, CUDA, the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from posixpath import normpath

from packaging.specifiers import SpecifierSet

from wheelfab import facts as known
from wheelfab import requires
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.manylinux import MACHINES, levels
from wheelfab.elf import Elf

_LOADER = re.compile(r"ld-linux[-\w]*\.so\.\d+|ld64\.so\.\d+")
_MUSL = re.compile(r"(ld-musl|libc\.musl)-\w+\.so\.\d+")
_TORCH = re.compile(r"lib(torch\w*|c10\w*|shm|caffe2\w*)\.so")
_DRIVER = re.compile(
    r"lib(cuda\.so(\.\d+)?|nvidia-[-\w]+\.so(\.[\d.]+)?|nvcuvid\.so.*|nvoptix\.so.*)"
)
_HASHED = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # auditwheel's suffix of what it copied
_LOCAL_CUDA = re.compile(r"(?:^|[._-])cu(\d{2})\d(?:[._-]|$)")


class Origin(StrEnum):
    """Whom a needed library belongs to."""

    SYSTEM = "system"  # on the policy's list of what every system has
    OWN = "own"
    TORCH = "torch"
    CUDA = "cuda"
    DRIVER = "driver"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbours:
    """The libraries of a wheel, by each name that a loader knows them by."""

    by_name: Mapping[str, LibraryFacts]

    def closure(self, library: LibraryFacts) -> tuple[LibraryFacts, ...]:
        """The wheel's own libraries that are loaded with one, itself first."""
        found = {library.name: library}
        waiting = [library]
        while waiting:
            elf = waiting.pop().host
            for name in elf.needed if elf else ():
                other = self.by_name.get(name)
                if other is not None and other.name not in found:
                    found[other.name] = other
                    waiting.append(other)
        return tuple(found.values())


def neighbours(facts: WheelFacts) -> Neighbours:
    """The libraries of the wheel by file name and by soname."""
    names: dict[str, LibraryFacts] = {}
    for library in facts.libraries:
        if library.host is not None:
            names.setdefault(library.file, library)
            if library.host.soname:
                names.setdefault(library.host.soname, library)
    return Neighbours(by_name=names)


def origin_of(name: str, elf: Elf, others: Neighbours) -> Origin:
    """Whom the needed library ``name`` of ``elf`` belongs to."""
    if name in others.by_name:
        return Origin.OWN
    if _LOADER.fullmatch(name) or _MUSL.fullmatch(name) or name in _system(elf):
        return Origin.SYSTEM
    if _DRIVER.fullmatch(name):
        return Origin.DRIVER
    if _TORCH.fullmatch(name):
        return Origin.TORCH
    return Origin.CUDA if cuda_library(name) is not None else Origin.UNKNOWN


def _system(elf: Elf) -> frozenset[str]:
    machine = MACHINES.get(elf.machine)
    return levels(machine)[-1].libraries if machine else frozenset()


def cuda_library(name: str) -> known.CudaLibrary | None:
    """The library of CUDA's that a file is, whatever its version or the hash in its name."""
    stem = _HASHED.sub("", name).partition(".so")[0]
    found = known.cuda_libraries().get(stem)
    return found or known.cuda_libraries().get(re.sub(r"_\w+$", "", stem))  # libcudnn_ops


def cuda_majors(elf: Elf) -> dict[str, tuple[int, ...]]:
    """The needed libraries that tell a CUDA release, each with the major numbers that it fits."""
    return {
        name: library.sonames[name]
        for name in elf.needed
        if (library := cuda_library(name)) is not None and name in library.sonames
    }


def required(facts: WheelFacts) -> Mapping[str, SpecifierSet]:
    """The distributions that METADATA requires, extras left out, with their versions."""
    return requires.required(facts.requires_dist, facts.name.tags if facts.name else ())


def brings(library: known.CudaLibrary, distributions: Iterable[str]) -> bool:
    """Whether one of the distributions is NVIDIA's wheel of a library."""
    return any(
        re.fullmatch(re.escape(library.distribution) + r"(-cu\d+)?", name) for name in distributions
    )


def declared_cuda(facts: WheelFacts) -> int | None:
    """The CUDA release, by major, that the build record or the local version (cu121) names."""
    if facts.build is not None and isinstance(facts.build.get("cuda"), str):
        text = str(facts.build["cuda"]).partition(".")[0]
        return int(text) if text.isdigit() else None
    local = facts.name.version.local if facts.name else None
    found = _LOCAL_CUDA.search(local or "")
    return int(found[1]) if found else None


def declares_cpu(facts: WheelFacts) -> bool:
    """Whether the wheel says that it is for the CPU alone: by its build record or as ``+cpu``."""
    if facts.build is not None and "cuda" in facts.build:
        return facts.build["cuda"] is None
    local = facts.name.version.local if facts.name else None
    return "cpu" in re.split(r"[._-]", local or "")


def run_path(elf: Elf) -> tuple[str, ...]:
    """The elements of RUNPATH, or of RPATH where there is none."""
    text = elf.runpath if elf.runpath is not None else elf.rpath
    return tuple(text.split(":")) if text is not None else ()


def folders(library: LibraryFacts, elf: Elf) -> Iterator[str]:
    """The folders of the wheel that a library's run path leads to, as members are named."""
    here = library.name.rpartition("/")[0]
    for element in run_path(elf):
        rest = re.sub(r"^\$(ORIGIN|\{ORIGIN\})", "", element)
        if rest != element:
            yield normpath(f"{here}/{rest.lstrip('/')}")
