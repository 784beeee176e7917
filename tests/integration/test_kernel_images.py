"""The kernels as the toolchains compile them: no spills, the records of ops.h, the page."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import wheelfab
from tests.fibers.kernel_source import ALL_KERNELS, sources
from tests.fibers.kernels_page import Images, read_images, read_page
from tests.fibers.records import records
from wheelfab.store import default_root

ROOT = Path(__file__).resolve().parents[2]
FACTORY = Path(wheelfab.__file__).parent.parent


def _compile(folder: Path, cuda: str, archs: str) -> Images:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PYTHONPATH": str(FACTORY), "WHEELFAB_STORE": str(default_root())}
    environment |= {"TORCH_CUDA_ARCH_LIST": archs}
    fatbins = []
    for source in sources():
        fatbins.append(folder / f"{source.stem}.fatbin")
        command = [
            *(sys.executable, "-m", "wheelfab.toolchain.device", "--toolchain", "pypi-nvrtc"),
            *("--cuda", cuda, "--include", "csrc", "--std", "c++17", "--out", str(fatbins[-1])),
            str(source.relative_to(ROOT)),
        ]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return read_images(fatbins)


@pytest.fixture(scope="module")
def images_121(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """CUDA 12.1, of which the page is, for two of its archs."""
    return _compile(tmp_path_factory.mktemp("cu121"), "12.1", "8.0;9.0+PTX")


@pytest.fixture(scope="module")
def images_118(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """CUDA 11.8."""
    return _compile(tmp_path_factory.mktemp("cu118"), "11.8", "8.6")


def _check(images: Images, release: str, archs: set[str]) -> None:
    assert images.release == release
    assert set(images.cubins) == archs
    for kernels in images.cubins.values():
        assert set(kernels) == set(ALL_KERNELS)
        assert {name for name, facts in kernels.items() if facts.stack} == set()
        for name, facts in kernels.items():
            assert facts.parameters == ctypes.sizeof(records()[ALL_KERNELS[name]]), name


def test_cuda_12_1(images_121: Images) -> None:
    """Every kernel, without a stack frame, with the record of ops.h as its parameter."""
    _check(images_121, "12.1", {"8.0", "9.0"})


def test_cuda_11_8(images_118: Images) -> None:
    """As 12.1."""
    _check(images_118, "11.8", {"8.6"})


def test_the_page_is_what_the_sources_compile_to(images_121: Images) -> None:
    """Registers, shared memory and wide accesses, to the number: NVRTC is deterministic."""
    for name, row in read_page().items():
        facts = {arch: images_121.cubins[arch][name] for arch in images_121.cubins}
        assert {arch: row.registers[arch] for arch in facts} == {
            arch: each.registers for arch, each in facts.items()
        }, name
        assert row.shared == max(each.shared for each in facts.values()), name
        assert {images_121.wide[arch][name] for arch in facts} == {row.wide}, name
