"""One row of CUDA 13, by nvcc from PyPI: the same kernels as by NVRTC, in the format of CUDA 13."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.fibers.kernel_source import ALL_KERNELS
from wheelfab.elf import parse_elf, read_elf
from wheelfab.fatbin import (
    Entry,
    ImageKind,
    archs_of,
    entries_of,
    kernels,
    loadable_archs,
    read_image,
)
from wheelfab.wheel import Wheel, verify_wheel

from .sources import repository_with

ROW = """
[variants.cu130]
cuda = "13.0"
toolchain = "pypi-nvcc"
arch = ["8.0", "9.0+PTX"]
"""
ARCHS = ("8.0", "9.0", "9.0+PTX")
CUBIN_ABI = {"cu121-torch2.10": 7, "cu130-torch2.10": 8}  # e_ident[EI_ABIVERSION]


@dataclass(frozen=True)
class Built:
    """A wheel and its library of kernels, unpacked."""

    wheel: Wheel
    library: Path

    def images(self) -> list[tuple[Entry, bytes]]:
        """Every image of the library with its entry."""
        return [(entry, read_image(self.library, entry)) for entry in entries_of(self.library)]

    def kernels(self, target: str) -> set[str]:
        """The kernels of all images for one target."""
        return {
            name
            for entry, image in self.images()
            if entry.target == target
            for name in kernels(image, entry, where=entry.name)
        }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """The wheels of both routes, from this repository's sources; what it has stored is reused."""
    root = tmp_path_factory.mktemp("cu130") / "repository"
    project = repository_with(root, ROW)
    project.json("lock")  # adds the row's toolchain
    results = project.json("build", *CUBIN_ABI)
    found = {}
    for result in results:
        wheel = verify_wheel(Path(result["wheel"]))
        with ZipFile(wheel.path) as archive:
            archive.extractall(root / result["cell"])
        library = root / result["cell"] / "freewheel" / "_kernels.so"
        found[result["cell"]] = Built(wheel=wheel, library=library)
    return found


def test_the_wheel_holds_just_the_archs_of_its_row(built: dict[str, Built]) -> None:
    made = built["cu130-torch2.10"]
    assert made.wheel.local == "cu130.torch2.10"
    assert archs_of(made.library) == ARCHS
    assert made.wheel.build is not None
    assert made.wheel.build["cuda"] == "13.0"
    assert made.wheel.build["archs"] == list(ARCHS)
    assert made.wheel.build["compilers"]["device"]["route"] == "pypi-nvcc"
    for container in {entry.container for entry in entries_of(made.library)}:
        entries = tuple(e for e in entries_of(made.library) if e.container == container)
        assert loadable_archs(entries) == ARCHS


def test_both_routes_make_the_same_kernels(built: dict[str, Built]) -> None:
    for target in ARCHS:
        assert built["cu130-torch2.10"].kernels(target) == set(ALL_KERNELS), target
        assert built["cu121-torch2.10"].kernels(target) == set(ALL_KERNELS), target


def test_cubins_of_either_abi_are_read(built: dict[str, Built]) -> None:
    """CUDA 13 moved the arch to the second byte of e_flags; ``kernels`` compares it."""
    for cell, made in built.items():
        cubins = [
            (entry, parse_elf(image, where=entry.name, symbols=False))
            for entry, image in made.images()
            if entry.kind is ImageKind.CUBIN
        ]
        assert {elf.abi_version for _, elf in cubins} == {CUBIN_ABI[cell]}
        shift = 8 if CUBIN_ABI[cell] == 8 else 0
        for entry, elf in cubins:
            assert (elf.flags >> shift) & 0xFF == int(entry.arch.replace(".", ""))


def test_no_cuda_library_is_needed(built: dict[str, Built]) -> None:
    for library in built["cu130-torch2.10"].library.parent.glob("*.so"):
        needed = read_elf(library).needed
        assert not [name for name in needed if name.startswith(("libcu", "libnv"))], library.name
