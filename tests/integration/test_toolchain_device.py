"""Real device compiles by the pinned toolchains: right archs, the same bytes in every folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

import wheelfab
from wheelfab.errors import BuildError, ToolchainError, UsageError
from wheelfab.fatbin import Compression, ImageKind, archs_of, entries_of, kernels, read_image
from wheelfab.store import Store, default_root
from wheelfab.toolchain.pins import pinned
from wheelfab.toolchain.wheels import KIND, fetch_toolchain, toolchain_key

FACTORY = Path(wheelfab.__file__).parent.parent
NVRTC, NVCC = "pypi-nvrtc", "pypi-nvcc"
# cuda_bf16.h is what made NVRTC 12.1's output differ from run to run.
SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "shared.cuh"
#define TWICE(name, T) extern "C" __global__ void name(T* values) { twice(values); }
TWICE(fw_twice_f32, float)
TWICE(fw_twice_f16, __half)
TWICE(fw_twice_bf16, __nv_bfloat16)
"""
HEADER = """#pragma once
template <typename T> __device__ void twice(T* values) {
  __shared__ float kept[32];
  kept[threadIdx.x] = static_cast<float>(values[threadIdx.x]);
  __syncthreads();
  values[threadIdx.x] = static_cast<T>(2.0f * kept[31 - threadIdx.x]);
}
"""


@pytest.fixture(
    scope="module",
    params=[(NVRTC, "11.8"), (NVRTC, "12.1"), (NVRTC, "12.4"), (NVCC, "13.0")],
    ids=" ".join,
)
def toolchain(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Route and CUDA release of a toolchain that is in the store by now."""
    route, cuda = request.param
    fetch_toolchain(Store(default_root()), route, Version(cuda))
    return route, cuda


def project(folder: Path) -> Path:
    """A small project: one source, one header; the source's path relative to ``folder``."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "inc").mkdir()
    (folder / "kernels" / "twice.cu").write_text(SOURCE)
    (folder / "inc" / "shared.cuh").write_text(HEADER)
    return Path("kernels/twice.cu")


def compile_in(
    folder: Path, toolchain: tuple[str, str], archs: str | None, *options: str, source: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the device compile as the plan does, in ``folder``."""
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ
    }
    environment |= {"PYTHONPATH": str(FACTORY), "WHEELFAB_STORE": str(default_root())}
    environment |= {"CUDAARCHS": "75", "NVCC_APPEND_FLAGS": "-arch=sm_75", "CXX": "/nowhere"}
    if archs is not None:
        environment["TORCH_CUDA_ARCH_LIST"] = archs
    return subprocess.run(
        [
            *(sys.executable, "-m", "wheelfab.toolchain.device"),
            *("--toolchain", toolchain[0], "--cuda", toolchain[1], "--include", "inc"),
            *("--out", "out.fatbin", *options, source or "kernels/twice.cu"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_result_holds_just_the_archs_asked_for(
    tmp_path: Path, toolchain: tuple[str, str]
) -> None:
    project(tmp_path)
    done = compile_in(tmp_path, toolchain, "8.0;9.0+PTX")
    assert done.returncode == 0, done.stderr
    tool = toolchain[0].removeprefix("pypi-")
    for target in ("sm_80", "sm_90", "compute_90"):
        assert f"{tool} {toolchain[1]} {target} twice.cu " in done.stderr
    fatbin = tmp_path / "out.fatbin"
    assert archs_of(fatbin) == ("8.0", "9.0", "9.0+PTX")
    for entry in entries_of(fatbin):
        assert entry.compression is Compression.NONE
        image = read_image(fatbin, entry)
        found = kernels(image, entry, where="out")
        assert found == ("fw_twice_bf16", "fw_twice_f16", "fw_twice_f32")
        if entry.kind is ImageKind.PTX:
            data = fatbin.read_bytes()
            assert data[entry.offset + len(image)] == 0, "a driver reads PTX up to its NUL"


def test_the_bytes_depend_on_neither_folder_nor_run(
    tmp_path: Path, toolchain: tuple[str, str]
) -> None:
    made = set()
    for name in ("one", "another/much/deeper/folder"):
        folder = tmp_path / name
        project(folder)
        done = compile_in(folder, toolchain, "8.0+PTX", *(("--jobs", "2") if "/" in name else ()))
        assert done.returncode == 0, done.stderr
        made.add((folder / "out.fatbin").read_bytes())
        assert str(folder).encode() not in next(iter(made))
    assert len(made) == 1


def test_archs_at_once_give_the_same_bytes_as_one_by_one(tmp_path: Path) -> None:
    project(tmp_path)
    fetch_toolchain(Store(default_root()), NVRTC, Version("12.1"))
    made = set()
    for jobs in ("1", "2"):
        done = compile_in(tmp_path, (NVRTC, "12.1"), "8.0;9.0a+PTX", "--jobs", jobs)
        assert done.returncode == 0, done.stderr
        assert "nvrtc 12.1 compute_90a twice.cu" in done.stderr
        made.add((tmp_path / "out.fatbin").read_bytes())
    assert len(made) == 1
    assert archs_of(tmp_path / "out.fatbin") == ("8.0", "9.0a", "9.0a+PTX")


@pytest.mark.parametrize(
    ("archs", "error", "says"),
    [
        (None, UsageError, "TORCH_CUDA_ARCH_LIST is not set"),
        ("native", UsageError, "'native'"),
        ("8.0;10.0", ToolchainError, "nvrtc 12.1 does not know sm_100; it knows 5.0 "),
    ],
)
def test_a_wrong_arch_list_is_an_exit_code_and_a_sentence(
    tmp_path: Path, archs: str | None, error: type[UsageError | ToolchainError], says: str
) -> None:
    project(tmp_path)
    done = compile_in(tmp_path, (NVRTC, "12.1"), archs)
    assert done.returncode == error.exit_code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.fatbin").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_error_in_the_source_is_the_compilers_own_and_leaves_nothing(
    tmp_path: Path, toolchain: tuple[str, str], jobs: str
) -> None:
    project(tmp_path)
    (tmp_path / "broken.cu").write_text('extern "C" __global__ void fw_x() { missing(); }\n')
    done = compile_in(tmp_path, toolchain, "8.0;9.0", "--jobs", jobs, source="broken.cu")
    assert done.returncode == BuildError.exit_code
    assert 'broken.cu(1): error: identifier "missing" is undefined' in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.fatbin").exists()
    assert list(tmp_path.glob(".*.part")) == []


def test_a_warning_is_passed_on(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "odd.cu").write_text('extern "C" __global__ void fw_x() { int unused; }\n')
    done = compile_in(tmp_path, (NVRTC, "12.1"), "8.0", source="odd.cu")
    assert done.returncode == 0, done.stderr
    assert "warning: nvrtc 12.1 sm_80 odd.cu: odd.cu(1): warning" in done.stderr


def test_the_path_has_no_say_in_which_nvcc_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_toolchain(Store(default_root()), NVCC, Version("13.0"))
    fake = tmp_path / "bin" / "nvcc"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'release 12.1, V12.1.105'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    project(tmp_path / "project")
    done = compile_in(tmp_path / "project", (NVCC, "13.0"), "9.0")
    assert done.returncode == 0, done.stderr
    assert archs_of(tmp_path / "project" / "out.fatbin") == ("9.0",)


def test_a_tool_of_another_release_than_its_pins_say_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    real = fetch_toolchain(Store(default_root()), NVRTC, Version("11.8"))
    pins, wrong = pinned(NVRTC, Version("12.1")), pinned(NVRTC, Version("11.8"))

    def swap(content: Path) -> None:
        shutil.copytree(real, content, dirs_exist_ok=True)
        folder = content / pins.compiler.parent
        folder.chmod(0o755)
        (content / wrong.compiler).rename(content / pins.compiler)

    store.entry(KIND, toolchain_key(pins), swap)
    project(tmp_path / "project")
    environment = {**os.environ, "PYTHONPATH": str(FACTORY), "WHEELFAB_STORE": str(store.root)}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "wheelfab.toolchain.device", "--toolchain", NVRTC),
            *("--cuda", "12.1", "--out", "out.fatbin", "kernels/twice.cu"),
        ],
        cwd=tmp_path / "project",
        env=environment | {"TORCH_CUDA_ARCH_LIST": "8.0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ToolchainError.exit_code
    assert "the tool says it is of CUDA 11.8, not 12.1" in done.stderr
