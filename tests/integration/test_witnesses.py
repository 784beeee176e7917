"""The built wheels by tools that are not ours: readelf, cuobjdump, nvdisasm.

PyPI's cuobjdump is of CUDA 13.5 and takes the 9.0 cubins of NVRTC 12.1, even of a one-line kernel,
for no ELF, where Debian's 12.4 and nvdisasm read them. So each cubin is also cut out by its ELF
header alone and named by nvdisasm.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pytest

from tests.fibers.cuda_binaries import disassembled, listed
from tests.fibers.kernel_source import sources
from wheelfab.loops.cell import built_wheel
from wheelfab.matrix import load_matrix
from wheelfab.variant import Cell, expand

from .conftest import ROOT

CELLS = expand(load_matrix(ROOT / "matrix.toml")).cells
CUBINS = ("80", "86", "89", "90")
GLIBC = {f"{name}.so.{number}" for name, number in (("libc", 6), ("libm", 6), ("libdl", 2))}
SYSTEM = GLIBC | {"libpthread.so.0", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"}
TORCH = {"libtorch.so", "libtorch_cpu.so", "libc10.so"}
_ELF64 = struct.Struct("<16sHHIQQQIHHHHHH")
_CUDA_MACHINE = 190


@pytest.fixture
def binaries(cell: Cell, tmp_path: Path) -> tuple[Path, ...]:
    """Every ELF file of the built wheel of ``cell``, unpacked."""
    with ZipFile(built_wheel(ROOT, cell).path) as archive:
        archive.extractall(tmp_path)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    return tuple(path for path in found if path.read_bytes()[:4] == b"\x7fELF")


each_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)


@each_cell
def test_no_cuda_library_is_needed(binaries: tuple[Path, ...]) -> None:
    names = {path.name for path in binaries}
    assert names == {"_C.abi3.so", "_kernels.so", "_torch.so", "_probe"}
    for path in binaries:
        needed = _needed(path)
        assert needed <= SYSTEM | (TORCH if path.name == "_torch.so" else set()), path.name
        assert needed & GLIBC, path.name


def _needed(path: Path) -> set[str]:
    shown = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True)
    return set(re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", shown.stdout))


@each_cell
def test_device_code_is_in_the_kernels_of_a_cuda_wheel_only(
    cell: Cell, binaries: tuple[Path, ...]
) -> None:
    for path in binaries:
        if cell.variant.cuda is None or path.name != "_kernels.so":
            assert listed(path).endswith(" does not contain device code\n"), path.name
        else:
            assert "does not contain device code" not in listed(path)


@pytest.mark.parametrize(
    "cell", [cell for cell in CELLS if cell.variant.name == "cu118"], ids=lambda cell: cell.id
)
def test_each_file_of_kernels_is_there_for_each_arch(binaries: tuple[Path, ...]) -> None:
    """sm_80, 86, 89 and 90 and PTX 9.0, and nothing else; cuobjdump 13.5 reads all of CUDA 11.8."""
    (kernels,) = (path for path in binaries if path.name == "_kernels.so")
    names = [re.sub(r".*: +", "", line) for line in listed(kernels).splitlines()]
    stems = [path.stem for path in sources()]
    cubins = [f"{stem}.sm_{arch}.cubin" for stem in stems for arch in CUBINS]
    assert sorted(names) == sorted([*cubins, *(f"{stem}.sm_90.ptx" for stem in stems)])


@each_cell
def test_each_cubin_is_for_an_arch_of_the_matrix(cell: Cell, binaries: tuple[Path, ...]) -> None:
    (kernels,) = (path for path in binaries if path.name == "_kernels.so")
    data = kernels.read_bytes()
    archs = Counter(map(_arch, _cubins(data)))
    targets = Counter(re.findall(rb"^\.target (\S+)$", data, re.MULTILINE))
    count = 0 if cell.variant.cuda is None else len(sources())
    assert archs == +Counter(dict.fromkeys(CUBINS, count))
    assert targets == +Counter({b"sm_90": count})


@cache
def _arch(cubin: bytes) -> str:
    """The arch that nvdisasm finds; kept, since the wheels of a variant hold the same images."""
    with TemporaryDirectory() as folder:
        (found,) = re.findall(r"\bEF_CUDA_SM(\w+) ", disassembled(cubin, Path(folder)))
    return str(found)


def _cubins(data: bytes) -> Iterator[bytes]:
    """Each ELF file for CUDA inside a file, from its own header: nothing of a fatbin is read."""
    for match in re.finditer(rb"\x7fELF\x02\x01", data):
        start = match.start()
        header = _ELF64.unpack_from(data, start)
        if header[2] == _CUDA_MACHINE:
            programs, sections = header[5:7]
            program_size, program_count, section_size, section_count = header[9:13]
            end = max(
                programs + program_size * program_count, sections + section_size * section_count
            )
            yield data[start : start + end]
