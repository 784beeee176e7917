"""Importing any module of freewheel starts nothing and asks nothing, as the kernel sees it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.installed.machine import PACKAGE

CALLS = "trace=open,openat,openat2,clone,clone3,fork,vfork,execve,execveat"
MODULES = sorted(
    {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
    }
    | {"freewheel._C"}
)
# A triton without a driver, as on a machine without a GPU: what comes of a decorator at import.
TRITON = "def __getattr__(name):\n    raise RuntimeError('0 active drivers ([])')\n"


class Seen(NamedTuple):
    """What an import did."""

    nvidia: list[str]  # lines of the trace that open a device or a library of NVIDIA's
    started: list[str]  # processes and threads, but the interpreter itself
    opened: int  # files in all: the trace sees something
    asked: bool  # the fake driver was loaded


def watch(code: str, driver: Path, folder: Path) -> Seen:
    """Run ``code`` in a fresh process under strace, beside a driver that counts.

    There is no PATH, no CUDA_HOME, and whoever imports triton is told that it has no driver.
    """
    folder.mkdir()
    (folder / "triton.py").write_text(TRITON, encoding="utf-8")
    trace, log = folder / "trace", folder / "log"
    strace = shutil.which("strace")
    assert strace is not None
    command = [strace, "-f", "--seccomp-bpf", "-qq", "-o", str(trace), "-e", CALLS]
    done = subprocess.run(
        [*command, sys.executable, "-c", code],
        env={
            "LD_LIBRARY_PATH": str(driver),
            "PYTHONPATH": str(folder),
            "FAKECUDA_LOG": str(log),
            "FAKECUDA_FAIL": "load=segv",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
    named = re.compile(r'"[^"]*(/dev/nvidia|libcuda\.so|libnvidia-ml)[^"]*"')
    started = [line for line in lines if re.search(r" (clone3?|v?fork|execve(at)?)\(", line)]
    return Seen(
        nvidia=[line for line in lines if named.search(line)],
        started=started[1:],
        opened=len(lines) - len(started),
        asked=log.exists(),
    )


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    """Only where processes can be traced."""
    path = shutil.which("strace")
    if path is None:
        pytest.skip("strace is not installed")
    if subprocess.run([path, "-qq", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("strace may not trace here")


@pytest.mark.parametrize("name", [name for name in MODULES if name != "freewheel.ops"])
def test_b13_b29_b30_each_module_alone(driver: Path, tmp_path: Path, name: str) -> None:
    """In a process of its own: what it needs, it imports itself."""
    seen = watch(f"import {name}", driver, tmp_path / "import")
    assert seen.opened > 20
    assert (seen.nvidia, seen.started, seen.asked) == ([], [], False)


def test_b13_b29_operations_add_nothing_to_torch(driver: Path, tmp_path: Path) -> None:
    """A CUDA build of torch opens libcuda itself; only what comes with freewheel is judged."""
    alone = watch("import torch", driver_or_none(driver, tmp_path), tmp_path / "alone")
    ours = watch("import freewheel.ops", driver_or_none(driver, tmp_path), tmp_path / "ours")
    assert len(ours.started) <= len(alone.started)
    assert len(ours.nvidia) <= len(alone.nvidia)
    assert ours.asked <= alone.asked


def driver_or_none(driver: Path, tmp_path: Path) -> Path:
    """The fake driver, or none beside a torch that would load it and die with it."""
    import torch

    return tmp_path if torch.version.cuda else driver


def test_a_module_that_asks_is_seen(driver: Path, tmp_path: Path) -> None:
    """The watch itself works."""
    code = (
        "import ctypes, os, threading\n"
        "os.path.exists('/dev/nvidia0')\n"
        "try: open('/dev/nvidia0')\nexcept OSError: pass\n"
        "thread = threading.Thread(target=int); thread.start(); thread.join()\n"
        "pid = os.posix_spawn('/bin/true', ['true'], {}); os.waitpid(pid, 0)\n"
    )
    seen = watch(code, driver, tmp_path / "one")
    assert len(seen.nvidia) == 1
    assert len(seen.started) == 3  # a thread, a process, its program
    quiet = {"FAKECUDA_FAIL": ""}
    loads = f"import os; os.environ.update({quiet!r})\nimport ctypes; ctypes.CDLL('libcuda.so.1')"
    assert watch(loads, driver, tmp_path / "two").asked


def test_every_module_is_walked() -> None:
    """By what lies in the package, so that none is forgotten."""
    assert {"freewheel", "freewheel.ops", "freewheel._C", "freewheel.device._ask"} <= set(MODULES)
    assert os.path.exists(PACKAGE / "__init__.py")
    assert len(MODULES) > 20
