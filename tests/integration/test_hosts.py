"""Wheels on hosts for real: good ones, and wheels made wrong on purpose, each caught and named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.factory.cellmaker import record_cell
from tests.factory.matrixmaker import MATRIX
from tests.factory.wheelmaker import make_cell
from wheelfab.containers import Engine
from wheelfab.records import file_digest

from .conftest import ROOT, Wheelfab
from .sources import repository_with

CELL = "cu121-torch2.4"
STATE = '''
doctor = ["-c", "print('well')"]
state = """
import demo
result = {"status": demo.status, "reason": "it says so", "notes": [], "images": []}
"""
'''
HOSTS = """
[hosts.bare]
help = "no driver"
torch = "none"
status = "fine"
[hosts.debian-13]
help = "another glibc"
base = "debian-13"
torch = "none"
status = "fine"
[hosts.dies]
help = "a driver that dies in cuInit"
driver = "fake"
torch = "none"
environment = { FAKECUDA_FAIL = "cuInit=segv" }
status = "fine"
[hosts.dies-loading]
help = "a driver that dies in its constructor"
driver = "fake"
torch = "none"
environment = { FAKECUDA_FAIL = "load=segv" }
status = "fine"
[hosts.skewed]
help = "a kernel module of another release"
torch = "none"
files = { "/proc/driver/nvidia/version" = "Kernel Module  1.2.3" }
status = "fine"
"""
REAL_DRIVER = """
[hosts.real]
help = "NVIDIA's own driver library, no device"
image = "driver-host"
driver = "real"
torch = "none"
status = "fine"
"""
GOOD = "int answer(void) { return 42; }\n"
# Asks the driver as the library is loaded, as a static object would.
ASKS = """
#include <dlfcn.h>
int answer(void) { return 42; }
__attribute__((constructor)) void ask_the_driver(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver) ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
}
"""
# Dies where there is any driver library, and nowhere else.
DIES_BESIDE = """
#include <dlfcn.h>
int answer(void) { return 42; }
__attribute__((constructor)) void look_for_a_driver(void) {
  if (dlopen("libcuda.so.1", RTLD_NOW)) *(volatile int*)0 = 1;
}
"""
NEEDS = "int cuInit(unsigned);\nint answer(void) { return cuInit(0), 42; }\n"
OTHER_TORCH = """
void _ZN3c104cuda9SetDeviceEi(int);
int answer(void) { return _ZN3c104cuda9SetDeviceEi(0), 42; }
"""
PACKAGE = """
import ctypes, os, pathlib
native = ctypes.CDLL(str(pathlib.Path(__file__).with_name("native.so")), mode=os.RTLD_NOW)
assert native.answer() == 42
status = "fine"
"""


@dataclass(frozen=True)
class Project:
    """A project with one built wheel, which holds one library."""

    wheelfab: Wheelfab

    def results(self, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
        """The results of ``wheelfab loop`` by host."""
        done = self.wheelfab.run("loop", "--variant", CELL, "--json", *arguments)
        assert done.returncode == code, done.stderr
        return {item["host"]: item for item in json.loads(done.stdout)}


def project(
    folder: Path, source: str, *flags: str, package: str = PACKAGE, hosts: str = HOSTS
) -> Project:
    """A project whose wheel's library was compiled from ``source``, with a ``docker`` folder."""
    folder.mkdir()
    text = MATRIX.replace('size-budget = "40 MB"\n', f'size-budget = "40 MB"\n{STATE}', 1)
    (folder / "matrix.toml").write_text(text + hosts, encoding="utf-8")
    shutil.copytree(ROOT / "docker", folder / "docker")
    (folder / "native.c").write_text(source, encoding="utf-8")
    library = folder / "native.so"
    command = ["gcc", "-g", "-shared", "-fPIC", "native.c", "-o", str(library), *flags]
    subprocess.run(command, cwd=folder, check=True)
    files = {"demo/__init__.py": package.encode(), "demo/native.so": library.read_bytes()}
    wheel = make_cell(folder / "dist", CELL, files=files)
    record_cell(folder, CELL, "ok", wheel=wheel.name, sha256=file_digest(wheel))
    return Project(Wheelfab(folder))


def test_a_good_wheel_passes_everywhere_and_the_result_says_in_what(
    tmp_path: Path, engine: Engine
) -> None:
    assert engine
    results = project(tmp_path / "p", GOOD).results("--count", "2")
    assert {
        name: item["verdict"] for name, item in _with_verdicts(results).items()
    } == dict.fromkeys(("bare", "debian-13", "dies", "dies-loading", "skewed"), "passed")
    assert {item["harness"] for item in results.values()} == {"container"}
    assert results["debian-13"]["base"] == "debian-13"
    assert results["bare"]["fresh"] == {"made": 2, "passed": 2}
    assert results["bare"]["forked"] == {"made": 20, "passed": 20}


def test_without_containers_what_is_not_honest_is_not_run(tmp_path: Path) -> None:
    results = project(tmp_path / "p", GOOD).results("--count", "2", "--no-container")
    assert {name: item["harness"] for name, item in results.items()} == {
        "bare": "process",
        "debian-13": "",
        "dies": "process",
        "dies-loading": "process",
        "skewed": "namespace" if os.geteuid() == 0 else "",
    }
    assert "needs a container" in results["debian-13"]["not_run"]
    assert results["bare"]["doctor"].startswith("exit 0, ")


def test_b13_a_constructor_that_asks_the_driver_is_caught_and_named(
    tmp_path: Path, engine: Engine
) -> None:
    assert engine
    made = project(tmp_path / "p", ASKS, "-ldl")
    results = made.results("--count", "1", "--forked", "0", "--host", "bare", "dies", code=8)
    assert not results["bare"]["failures"]
    assert "SIGSEGV" in results["dies"]["failures"][0]
    (path,) = results["dies"]["crashes"]
    report = json.loads(Path(path).with_name("report.json").read_text())
    assert (report["signal"], report["si_code"]) == ("SIGSEGV", "SEGV_MAPERR")
    assert report["guilty"]["function"] == "cuInit"
    assert "ask_the_driver" in report["guilty"]["called_by"]


DIES_FORKED = "import ctypes, os\nos.register_at_fork(after_in_child=lambda: ctypes.string_at(0))\n"


@pytest.mark.skipif(
    shutil.which("gdb") is None or shutil.which("strace") is None, reason="needs gdb and strace"
)
def test_a_fork_that_dies_has_a_report_with_a_script_that_forks(tmp_path: Path) -> None:
    made = project(tmp_path / "p", GOOD, package=DIES_FORKED + PACKAGE)
    options = ("--count", "1", "--forked", "2", "--no-container", "--host", "bare")
    results = made.results(*options, code=8)
    assert results["bare"]["failures"] == [
        "load with torch: 2 of 2 forked processes ended badly: -11"
    ]
    (path,) = results["bare"]["crashes"]
    report = json.loads(Path(path).with_name("report.json").read_text())
    assert (report["signal"], report["stage"]) == ("SIGSEGV", "forked")
    assert report["reproduced"] == {"times": 3, "of": 3}
    # by name where Python's own modules have symbols; Debian's have none
    assert report["guilty"]["library"].startswith("_ctypes.")
    assert "os.fork()" in report["reproduce"]
    assert "import demo" in report["reproduce"]
    assert "visit.py" not in report["reproduce"]


def test_a_crash_beside_nvidias_own_library_is_looked_at_beside_it(
    tmp_path: Path, engine: Engine
) -> None:
    assert engine
    made = project(tmp_path / "p", DIES_BESIDE, "-ldl", hosts=REAL_DRIVER)
    results = made.results("--count", "1", "--forked", "0", code=8)
    assert "SIGSEGV" in results["real"]["failures"][0]
    (path,) = results["real"]["crashes"]
    report = json.loads(Path(path).with_name("report.json").read_text())
    assert report["reproduced"] == {"times": 3, "of": 3}
    assert report["guilty"]["function"] == "look_for_a_driver"
    assert any("libcuda.so" in item["path"] for item in report["libraries"])
    assert "wheelfab container driver-diagnosis" in report["problems"][-1]


def test_b05_a_library_that_needs_libcuda_is_caught_and_named(
    tmp_path: Path, engine: Engine
) -> None:
    folder = tmp_path / "stub"
    folder.mkdir()
    stub = ["gcc", "-shared", "-fPIC", "-xc", "-", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so"]
    subprocess.run(stub, cwd=folder, input=b"int cuInit(unsigned x) { return x; }", check=True)
    assert engine
    made = project(tmp_path / "p", NEEDS, f"-L{folder}", "-lcuda")
    arguments = ("--count", "1", "--forked", "0", "--host", "bare", "dies-loading")
    results = made.results(*arguments, code=8)
    assert "libcuda.so.1: cannot open shared object file" in results["bare"]["failures"][0]
    assert "SIGSEGV" in results["dies-loading"]["failures"][0]
    (path,) = results["dies-loading"]["crashes"]
    report = json.loads(Path(path).with_name("report.json").read_text())
    assert report["guilty"]["function"] == "fakecuda_load"
    assert "libcuda.so.1" in report["guilty"]["library"]


def test_b01_a_binding_for_another_torch_is_caught_and_named(tmp_path: Path) -> None:
    made = project(tmp_path / "p", OTHER_TORCH)
    results = made.results("--count", "1", "--no-container", "--host", "bare", code=8)
    assert "undefined symbol: _ZN3c104cuda9SetDeviceEi" in results["bare"]["failures"][0]


def test_an_executable_stack_is_caught_where_glibc_refuses_it(
    tmp_path: Path, engine: Engine
) -> None:
    assert engine
    made = project(tmp_path / "p", GOOD, "-Wl,-z,execstack")
    arguments = ("--count", "1", "--forked", "0", "--host", "bare", "debian-13")
    results = made.results(*arguments, code=8)
    assert not results["bare"]["failures"]
    assert "executable stack" in results["debian-13"]["failures"][0]


def test_a_wheel_that_gives_another_state_fails(tmp_path: Path) -> None:
    package = PACKAGE.replace('"fine"', '"busy"')
    made = project(tmp_path / "p", GOOD, package=package)
    results = made.results("--count", "1", "--no-container", "--host", "bare", code=8)
    assert "state 'busy', not 'fine'" in results["bare"]["failures"][0]
    assert results["bare"]["fresh"] == {"made": 1, "passed": 0}


def test_an_interrupt_ends_the_run_soon_and_leaves_no_container(
    tmp_path: Path, engine: Engine
) -> None:
    assert engine
    package = "import time\ntime.sleep(3)\n" + PACKAGE
    made = project(tmp_path / "p", GOOD, package=package)
    process = made.wheelfab.start("loop", "--variant", CELL, "--host", "bare", "dies")
    try:
        deadline = time.monotonic() + 60
        while not containers(process.pid) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert containers(process.pid)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        process.communicate(timeout=60)
        assert time.monotonic() - began < 30
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert not containers(process.pid)
    assert not (tmp_path / "p" / "build" / "hosts" / "report.json").exists()


def test_what_an_interrupted_run_has_finished_is_kept(tmp_path: Path, engine: Engine) -> None:
    assert engine
    package = "import os, time\ntime.sleep(30 * ('FAKECUDA_FAIL' in os.environ))\n" + PACKAGE
    made = project(tmp_path / "p", GOOD, package=package)
    options = ("--variant", CELL, "--host", "bare", "dies", "--count", "1", "--jobs", "1")
    process = made.wheelfab.start("loop", *options)
    report = tmp_path / "p" / "build" / "hosts" / "report.json"
    try:
        deadline = time.monotonic() + 90
        while not report.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    results = json.loads(report.read_text(encoding="utf-8"))["results"]
    assert [(item["host"], item["verdict"]) for item in results] == [("bare", "passed")]


def containers(pid: int) -> list[str]:
    """The names of the containers that a process of wheelfab has up."""
    client = docker.from_env()
    try:
        return [item.name for item in client.containers.list(filters={"name": f"wheelfab-{pid}-"})]
    finally:
        client.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "bar"), "no host 'bar'; did you mean 'bare'?"),
        (("--host", "bare", "--count", "0"), "--count 0 would prove nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = project(tmp_path / "p", GOOD).wheelfab.run("loop", "--variant", CELL, *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def _with_verdicts(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    report = {
        name: {**item, "verdict": "failed" if item["failures"] else "passed"}
        for name, item in results.items()
    }
    return {
        name: item | {"verdict": "not run"} if item["not_run"] else item
        for name, item in report.items()
    }


NO_PTX = """
[variants.cu121n]
cuda = "12.1"
arch = ["8.0"]
torch = ["stable >= 2.10"]
"""


def test_a_wheel_without_ptx_has_nothing_for_a_newer_device(tmp_path: Path) -> None:
    repository = repository_with(tmp_path / "repository", NO_PTX)
    (built,) = repository.json("build", "cu121n")
    assert built["state"] == "ok", built
    hosts = ("no-image-sm-75", "no-image-sm-120", "devices-1")
    options = ("--count", "1", "--forked", "1", "--no-container")
    done = repository.run("loop", "--variant", "cu121n", "--json", *options, "--host", *hosts)
    assert done.returncode == 0, done.stderr
    results = {item["host"]: item for item in json.loads(done.stdout)}
    assert {name: item["status"] for name, item in results.items()} == {
        "no-image-sm-75": "no_image",
        "no-image-sm-120": "no_image",
        "devices-1": "ready",
    }
    assert results["devices-1"]["with_torch"] == "passes, on each device too"
