"""What ``wheelfab.drivers`` makes, as a loader, a program and NVIDIA's runtime see it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.version import Version

from tests.drivers.child import LOAD, python, result
from wheelfab.drivers import (
    DriverKind,
    Pollution,
    entry_points,
    make_driver,
    make_pollution,
)
from wheelfab.drivers.library import compile_object, link_library, write_file
from wheelfab.elf import read_elf
from wheelfab.errors import ToolchainError

from .conftest import ROOT

RUNTIME = "nvidia-cuda-runtime-cu12==12.1.105"


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled drivers are kept between sessions, or for this one without a cache."""
    cache = getattr(request.config, "cache", None)
    return Path(cache.mkdir("drivers")) if cache else tmp_path_factory.mktemp("drivers")


@pytest.fixture(scope="session")
def driver(folder: Path) -> Path:
    """The folder of the fake driver."""
    return make_driver(DriverKind.FAKE, folder)


@pytest.fixture(scope="session")
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's CUDA runtime 12.1, from PyPI."""
    cache = getattr(request.config, "cache", None)
    folder = Path(cache.mkdir("cudart")) if cache else tmp_path_factory.mktemp("cudart")
    library = folder / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12"
    if not library.exists():
        command = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", RUNTIME)
        subprocess.run([*command, "-d", folder], check=True, timeout=300)
        (wheel,) = folder.glob("*.whl")
        with ZipFile(wheel) as archive:
            archive.extract(str(library.relative_to(folder)), folder)
    return library


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (DriverKind.GARBAGE, "invalid ELF header"),
        (DriverKind.EMPTY, "file too short"),
        (DriverKind.TRUNCATED, "cannot read file data"),
        (DriverKind.WRONG_MACHINE, "cannot open shared object file"),
    ],
)
def test_what_the_loader_says_of_what_is_no_driver(
    folder: Path, kind: DriverKind, words: str
) -> None:
    library = make_driver(kind, folder) / "libcuda.so.1"
    done = python(f"import ctypes; ctypes.CDLL({str(library)!r})")
    assert done.returncode == 1
    assert f"{library}: {words}" in done.stderr


def test_the_unversioned_driver_has_that_name_alone(folder: Path) -> None:
    made = make_driver(DriverKind.UNVERSIONED, folder)
    assert [path.name for path in made.iterdir()] == ["libcuda.so"]
    assert result("import ctypes; result = ctypes.CDLL('libcuda.so').cuInit(0)", made) == 0
    assert read_elf(made / "libcuda.so").soname == "libcuda.so.1"


def test_every_entry_point_of_the_stub_answers_34(folder: Path) -> None:
    code = f"{LOAD}result = {{name: cuda[name]() for name in {entry_points()!r}}}"
    answers = result(code, make_driver(DriverKind.STUB, folder))
    assert answers == dict.fromkeys(entry_points(), 34)


def test_the_fake_exports_its_entry_points_and_asks_for_little(driver: Path) -> None:
    elf = read_elf(driver / "libcuda.so.1")
    exported = {symbol.name for symbol in elf.defined}
    own = {name for name in exported if name.startswith("fakecuda_")}
    assert exported - own == set(entry_points())
    assert len(own) == 9
    system = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert set(elf.needed) <= system
    versions = {name for names in elf.version_needs.values() for name in names}
    assert max(Version(name.removeprefix("GLIBC_")) for name in versions) <= Version("2.28")


def test_a_hidden_entry_point_is_nowhere(folder: Path) -> None:
    made = make_driver(DriverKind.MISSING_SYMBOL, folder)
    code = f"""{LOAD}
found = c_void_p()
result = [cuda.cuGetProcAddress_v2(b"cuDeviceGetCount", byref(found), 12010, 0, None), found.value]
result += [cuda.cuGetProcAddress_v2(b"cuInit", byref(found), 12010, 0, None)]
result += [hasattr(cuda, "cuDeviceGetCount"), hasattr(cuda, "cuDeviceGet")]
"""
    assert result(code, made) == [500, None, 0, False, True]


def test_b04_a_library_linked_against_a_newer_driver(folder: Path, driver: Path) -> None:
    """It fails where it is loaded, by the name of what the older driver lacks."""
    text = (
        b'extern "C" int cuTensorMapEncodeTiled();\nint use() { return cuTensorMapEncodeTiled(); }'
    )
    built = compile_object(folder, write_file(folder, "newer.cpp", text))
    library = link_library(folder, "libnewer.so", [built], flags=(str(driver / "libcuda.so.1"),))
    old = make_driver(DriverKind.MISSING_SYMBOL, folder, hide=["cuTensorMapEncodeTiled"])
    load = f"import ctypes; ctypes.CDLL({str(library)!r})"
    assert python(load, driver).returncode == 0
    assert "undefined symbol: cuTensorMapEncodeTiled" in python(load, old).stderr


def cudart(runtime: Path, *folders: Path, **settings: str) -> Any:
    """What the CUDA runtime answers first: the driver's version, the count of devices."""
    code = f"""
from ctypes import *
runtime, version, count = CDLL({str(runtime)!r}), c_int(-1), c_int(-1)
result = [runtime.cudaDriverGetVersion(byref(version)), version.value]
result += [runtime.cudaGetDeviceCount(byref(count))]
"""
    return result(code, *folders, **settings)


@pytest.mark.parametrize("code", [3, 34, 35, 100, 101, 304, 802, 803, 804, 999, 4242])
def test_the_cuda_runtime_passes_a_code_on(runtime: Path, driver: Path, code: int) -> None:
    assert cudart(runtime, driver, FAKECUDA_FAIL=f"cuInit={code}") == [0, 12040, code]
    assert cudart(runtime, driver, FAKECUDA_FAIL=f"*={code}") == [0, 0, 35]


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({}, [0, 12040, 500]),
        ({"FAKECUDA_FAIL": "cuInit=0"}, [0, 12040, 500]),
        ({"FAKECUDA_FAIL": "cuInit=slow:50"}, [0, 12040, 500]),
        ({"FAKECUDA_DEVICES": "none"}, [0, 12040, 100]),
        ({"FAKECUDA_VERSION": "11080"}, [0, 11080, 35]),
    ],
)
def test_the_cuda_runtime_finds_no_device_that_it_could_use(
    runtime: Path, driver: Path, settings: dict[str, str], answers: list[int]
) -> None:
    assert cudart(runtime, driver, **settings) == answers


@pytest.mark.parametrize("kind", DriverKind)
def test_the_cuda_runtime_survives_every_kind(
    runtime: Path, folder: Path, kind: DriverKind
) -> None:
    answers = cudart(runtime, make_driver(kind, folder))
    working = kind in (DriverKind.FAKE, DriverKind.MISSING_SYMBOL)
    assert answers == ([0, 12040, 500] if working else [0, 0, 35])


@pytest.mark.parametrize(
    ("action", "returncode"), [("segv", -11), ("gp", -11), ("abort", -6), ("exit:9", 9)]
)
@pytest.mark.parametrize("place", ["load", "cuInit", "cuDriverGetVersion", "cuGetExportTable"])
def test_the_cuda_runtime_dies_where_the_driver_does(
    runtime: Path, driver: Path, place: str, action: str, returncode: int
) -> None:
    code = f"from ctypes import *\nCDLL({str(runtime)!r}).cudaGetDeviceCount(byref(c_int()))"
    done = python(code, driver, FAKECUDA_FAIL=f"{place}={action}")
    assert done.returncode == returncode


@pytest.mark.parametrize("action", ["hang", "deaf"])
def test_the_cuda_runtime_hangs_where_the_driver_does(
    runtime: Path, driver: Path, action: str
) -> None:
    code = f"from ctypes import *\nCDLL({str(runtime)!r}).cudaGetDeviceCount(byref(c_int()))"
    settings = {"LD_LIBRARY_PATH": str(driver), "FAKECUDA_FAIL": f"cuInit={action}"}
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", code], env=settings, timeout=1, check=False)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (Pollution.CUDART, "cudaGetDeviceCount", "cudaMallocAsync"),
        (Pollution.NVJITLINK, "__nvJitLinkAddData_12_0", "__nvJitLinkAddData_12_1"),
    ],
)
def test_b15_an_older_library_found_first(
    folder: Path, kind: Pollution, old: str, new: str
) -> None:
    """Who was linked against a newer one says which function of which version it misses."""
    soname = f"{kind}.so.12"
    functions = "".join(
        f'extern "C" [[gnu::visibility("default")]] int {n}() {{ return 0; }}\n' for n in (old, new)
    )
    newer = link_library(
        folder,
        soname,
        [compile_object(folder, write_file(folder, "newer.cpp", functions.encode()))],
        script=f"{soname} {{ global: {old}; {new}; local: *; }};\n",
    )
    for name, loads in ((old, True), (new, False)):
        text = f'extern "C" int {name}();\nint use() {{ return {name}(); }}\n'
        built = compile_object(folder, write_file(folder, "user.cpp", text.encode()))
        user = link_library(folder, "libuser.so", [built], flags=(str(newer),))
        load = f"import ctypes; ctypes.CDLL({str(user)!r})"
        assert python(load, newer.parent).returncode == 0
        done = python(load, make_pollution(kind, folder), newer.parent)
        assert (done.returncode == 0) == loads
        if not loads:
            assert f"undefined symbol: {new}, version {soname}" in done.stderr


def test_at_once_it_is_compiled_once(tmp_path: Path) -> None:
    log, tools = tmp_path / "log", tmp_path / "tools"
    tools.mkdir()
    compiler = shutil.which("g++")
    (tools / "g++").write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {compiler} "$@"\n')
    (tools / "g++").chmod(0o755)
    code = (
        f"import sys\nsys.path.insert(0, {str(ROOT / 'factory')!r})\n"
        "from pathlib import Path\nfrom wheelfab.drivers import *\n"
        f"print(make_driver(DriverKind.STUB, Path({str(tmp_path / 'drivers')!r})))"
    )
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, "-I", "-S", "-c", code]  # of nothing but the standard library
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(4)]
    assert len({process.communicate(timeout=60)[0] for process in started}) == 1
    assert [process.returncode for process in started] == [0] * 4
    calls = log.read_text().splitlines()
    assert sum(" -c " in line for line in calls) == 1
    assert sum("-shared" in line for line in calls) == 1


def test_a_compiler_that_refuses_is_quoted(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int wrong(;\n")
    with pytest.raises(ToolchainError, match=r"wrong\.cpp"):
        compile_object(folder, source)


def test_the_example_of_the_page(folder: Path, driver: Path, tmp_path: Path) -> None:
    """It passes for a package that asks no driver, and fails for one that does."""
    page = (ROOT / "docs" / "drivers.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert example is not None
    assert len(example[1].splitlines()) <= 12
    project = tmp_path / "project"
    shutil.copytree(driver, project / ".pytest_cache/d/drivers" / driver.name)
    for built in folder.glob("*.o"):
        shutil.copy(built, project / ".pytest_cache/d/drivers")
    (project / "test_example.py").write_text(example[1])
    package = project / "mypackage.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "factory")}
    command = [sys.executable, "-m", "pytest", "-q", "test_example.py"]
    outcomes = []
    for text in ("", "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) in (0, 999)"):
        package.write_text(text)
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        outcomes.append(done.stdout.splitlines()[-1])
    assert outcomes[0].startswith("4 passed"), outcomes
    assert outcomes[1].startswith("3 failed, 1 passed"), outcomes


def test_the_factorys_wheel_brings_the_sources(tmp_path: Path) -> None:
    source = tmp_path / "factory"
    shutil.copytree(ROOT / "factory", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = tmp_path.glob("wheelfab-*.whl")
    folder = ROOT / "factory" / "wheelfab" / "drivers"
    sources = {path for kind in ("*.cpp", "*.h") for path in folder.rglob(kind)}
    assert len(sources) > 10
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {str(path.relative_to(ROOT / "factory")) for path in sources} <= names
