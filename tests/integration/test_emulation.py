"""The emulation of devices as hosts and the GPU loop use it: made by a script, loaded elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.drivers.test_host_cuda import cpu_torch
from wheelfab.drivers import DriverKind, make_driver
from wheelfab.elf import read_elf
from wheelfab.hosts.arrange import Emulation, make_emulation
from wheelfab.matrix import load_matrix

from .conftest import ROOT

SCRIPT = ROOT / "tests" / "drivers" / "emulate.py"
HIGHEST = {"GLIBC": Version("2.36"), "GLIBCXX": Version("3.4.30"), "CXXABI": Version("1.3.13")}


def script(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    """Run the script as wheelfab does, with nothing on the path."""
    command = [sys.executable, "-I", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


def torch_package(folder: Path, version: str) -> Path:
    """A folder with no more of torch than its version."""
    package = folder / "torch"
    package.mkdir()
    (package / "version.py").write_text(version)
    return package


def test_a_cuda_build_of_torch_is_refused_with_a_sentence(tmp_path: Path) -> None:
    text = "__version__ = '2.4.1+cu121'\ncuda: str | None = '12.1'\n"
    done = script(tmp_path / "out", torch_package(tmp_path, text))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("torch 2.4.1+cu121 is a build for CUDA 12.1, and the emulation takes")


def test_what_is_no_torch_is_refused_with_a_sentence(tmp_path: Path) -> None:
    done = script(tmp_path / "out", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{tmp_path} is no package of torch: ")


@pytest.fixture(scope="module")
def torch() -> Path:
    """The folder of the CPU build of torch in the tests' own environment."""
    found = cpu_torch()
    if found is None:
        pytest.skip("needs a CPU build of torch in the tests' own environment")
    return found


@pytest.fixture(scope="module")
def emulation(
    torch: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Emulation:
    """The emulation for that torch, kept between sessions."""
    cache = getattr(pytestconfig, "cache", None)
    made = Path(cache.mkdir("emulation")) if cache else tmp_path_factory.mktemp("emulation")
    device_run = load_matrix(ROOT / "matrix.toml").project.device_run
    assert device_run is not None
    return make_emulation(device_run, ROOT, Path(sys.executable), torch, made)


def test_everybody_may_read_what_it_makes(emulation: Emulation) -> None:
    for path in (emulation.folder, *emulation.folder.rglob("*")):
        needed = 0o555 if path.is_dir() else 0o444
        assert stat.S_IMODE(path.stat().st_mode) & needed == needed, path


def test_it_asks_for_no_newer_libraries_than_debian_12_has(emulation: Emulation) -> None:
    libraries = list(emulation.folder.rglob("lib*.so"))
    assert len(libraries) >= 2
    for library in libraries:
        elf = read_elf(library)
        assert (elf.rpath, elf.runpath) == (None, None)
        for names in elf.version_needs.values():
            for name in names:
                family, _, version = name.rpartition("_")
                if family in HIGHEST:
                    assert Version(version) <= HIGHEST[family], (library, name)


CHECK = """
x = torch.arange(6.0).to("cuda:1")
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0

def unused():
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value

start = [torch.empty(1000, device="cuda:1")]
before = unused()
start.append(torch.empty(250_000, device="cuda:1"))
other = torch.empty(250_000, device="cuda:0")
taken = before - unused()
start.pop()
result = {"device": str(x.device), "sum": x.sum().item(), "taken": taken,
          "given back": before - unused(), "torch": torch.__file__}
"""


def loaded(emulation: Emulation, driver: Path, path: Path | None, code: str) -> dict[str, Any]:
    """What ``code`` leaves in ``result`` in a process that knows nothing of this repository."""
    environment = {
        "LD_LIBRARY_PATH": str(driver),
        "FAKECUDA_DEVICES": "8.0,9.0",
        "OMP_NUM_THREADS": "1",
        **emulation.environment,
    }
    first = f"import sys\nsys.path.insert(0, {str(path)!r})\n" if path else ""
    text = f"{first}{emulation.before}\nimport json, torch\n{code}\nprint(json.dumps(result))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", text],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_it_works_beside_another_copy_of_the_same_torch(
    emulation: Emulation, torch: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site" / "torch"
    shutil.copytree(torch, copy, copy_function=link_or_copy)
    driver = make_driver(DriverKind.FAKE, tmp_path / "drivers")
    answer = loaded(emulation, driver, copy.parent, CHECK)
    assert Path(answer["torch"]).parent == copy
    assert (answer["device"], answer["sum"]) == ("cuda:1", 15.0)


def test_the_driver_knows_what_tensors_take(emulation: Emulation, tmp_path: Path) -> None:
    driver = make_driver(DriverKind.FAKE, tmp_path / "drivers")
    answer = loaded(emulation, driver, None, CHECK)
    assert answer["taken"] == 1_000_448
    assert answer["given back"] == 0


def link_or_copy(source: str, target: str) -> str:
    """A hard link where it can be one, as an environment's torch is."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def test_the_backend_without_torch_says_so(emulation: Emulation, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", emulation.before],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 1
    assert "the host-CUDA backend needs torch, which is not installed" in done.stderr
