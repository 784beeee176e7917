"""A row that links the CUDA runtime: built, gated, audited, and loaded beside a CUDA torch."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.version import Version

from wheelfab.elf import parse_elf
from wheelfab.loops.site import link_tree
from wheelfab.store import Store, default_root
from wheelfab.toolchain.torch import KIND, choose_python, torch_key, torch_tree

from .conftest import Wheelfab

CELL = "cu121-torch2.4"
WHEEL = "tiny-1.0+cu121.torch2.4-cp310-abi3-manylinux_2_28_x86_64.whl"
CPU, CU121 = (f"https://download.pytorch.org/whl/{name}" for name in ("cpu", "cu121"))
RELEASE = Version("2.4.1")
RUNTIME = """
// What links the runtime and torch's library for CUDA, and asks each for devices when called.
// Declared here: the runtime's headers want some of nvcc's, which are in another wheel.
extern "C" int cudaGetDeviceCount(int* count);
namespace c10::cuda {
signed char device_count() noexcept;
}

extern "C" int tiny_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == 0 ? count : -1;
}
extern "C" int tiny_torch_devices() { return c10::cuda::device_count(); }
"""
LINKED = """
  file(GLOB cudart "${WHEELFAB_CUDA_ROOT}/lib/libcudart.so.*")
  target_link_libraries(_torch PRIVATE "${cudart}" "${WHEELFAB_TORCH_ROOT}/lib/libc10_cuda.so")
  set_target_properties(_torch PROPERTIES PREFIX "")
"""
STAGE = '''
[[project.load]]
stage = "torch"
needs-torch = true
run = """
import ctypes, pathlib, tiny, torch
library = ctypes.CDLL(str(pathlib.Path(tiny.__file__).with_name("_torch.so")))
assert (library.tiny_torch_minor(), library.tiny_torch_devices()) == (4, 0)
assert library.tiny_devices() == -1
"""
'''


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store where the index of CUDA 12.1 has been asked: PyPI's torch 2.4.1 is that build."""
    common = Store(default_root())
    python = choose_python(RELEASE)
    tree = torch_tree(common, release=RELEASE, index=CPU, fallback="pypi", python=python)
    made = tmp_path / "store"
    for kind in ("toolchain", "loop-site"):
        if (common.root / kind).is_dir():
            link_tree(common.root / kind, made / kind)
    if tree.cuda == "12.1":
        link_tree(tree.root.parent, made / KIND / torch_key(RELEASE, CU121, "pypi", python))
    return made


def linking(tiny: Wheelfab) -> None:
    """Make the tiny extension one row that links the CUDA runtime."""
    matrix = tiny.root / "matrix.toml"
    text = matrix.read_text()
    for old, new in (
        ('[variants.cu118]\ncuda = "11.8"\n\n', ""),
        ('cuda = "12.1"\n', 'cuda = "12.1"\ntorch = ["2.4"]\n'),
        ('cuda-api = "driver"', 'cuda-api = "runtime"'),
        (CPU, CU121),
        ('"csrc/binding.cpp"]', '"csrc/binding.cpp", "csrc/runtime.cpp"]'),
        ('\n[torch."2.4"]', f'{STAGE}\n[torch."2.4"]'),
    ):
        assert old in text, old
        text = text.replace(old, new)
    matrix.write_text(text)
    cmake = tiny.root / "csrc/CMakeLists.txt"
    old = '  set_target_properties(_torch PROPERTIES PREFIX "")\n'
    assert old in cmake.read_text()
    built = cmake.read_text().replace(old, LINKED)
    cmake.write_text(built.replace("binding.cpp", "binding.cpp runtime.cpp"))
    (tiny.root / "csrc/runtime.cpp").write_text(RUNTIME)


def test_a_wheel_that_links_the_runtime_is_built_and_loads_beside_its_torch(
    tiny: Wheelfab, store: Path
) -> None:
    linking(tiny)
    env = {"WHEELFAB_STORE": str(store)}
    (result,) = tiny.json("build", CELL, **env)
    assert (result["state"], Path(result["wheel"]).name) == ("ok", WHEEL)
    with ZipFile(result["wheel"]) as archive:
        elf = parse_elf(archive.read("tiny/_torch.so"), where="tiny/_torch.so")
    assert {"libcudart.so.12", "libc10_cuda.so"} <= set(elf.needed)
    asked = {symbol.name: symbol.version for symbol in elf.undefined}
    assert asked["cudaGetDeviceCount"] == "libcudart.so.12"
    options = ("--host", "here", "--count", "1", "--forked", "1", "--variant", CELL)
    (report,) = tiny.json("loop", *options, **env)
    (run,) = report["runs"]
    assert (run["found"], run["fresh"]["passed"], run["forked"]["passed"]) == ("2.4.1+cu121", 1, 1)
