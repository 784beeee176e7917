"""``matrix.lock`` against real builds: an input that differs stops them and is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from wheelfab.errors import BuildError, InfrastructureError, ToolchainError
from wheelfab.inputs import is_locked_compiler
from wheelfab.locked import LOCK, load_locked
from wheelfab.toolchain.host import host_compiler

from .conftest import ROOT, Wheelfab

CELL = "cu121-torch2.10"
NVRTC = "339b385f50c309763ca65456ec75e17bbefcbbf2893f462cb8b90584cd27a1c2"
ZEROS = "0" * 64


@pytest.fixture
def locked(tiny: Wheelfab) -> Wheelfab:
    """The tiny extension with this repository's lock: they have their inputs in common."""
    shutil.copy(ROOT / LOCK, tiny.root / LOCK)
    return tiny


def relock(tiny: Wheelfab, old: str, new: str = ZEROS) -> None:
    """Replace a text of the lock."""
    path = tiny.root / LOCK
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_toolchain_that_differs_is_named_before_anything_is_fetched(locked: Wheelfab) -> None:
    relock(locked, NVRTC)
    done = locked.run("build", CELL)
    assert done.returncode == ToolchainError.exit_code
    assert (
        f"error: matrix.lock: toolchain pypi-nvrtc 12.1: nvidia-cuda-nvrtc-cu12 12.1.105 has "
        f"SHA-256 {NVRTC} in facts/toolchains.toml, {ZEROS} in the lock; "
        "run `wheelfab lock --upgrade` if the change is wanted"
    ) in done.stderr
    assert not (locked.root / "build").exists()


def test_a_build_tool_with_another_hash_is_not_taken(locked: Wheelfab, tmp_path: Path) -> None:
    lock = load_locked(locked.root)
    assert lock is not None
    ninja = next(item for item in lock.requirement if item.package == "ninja")
    relock(locked, ninja.sha256)
    done = locked.run("build", CELL, WHEELFAB_STORE=str(tmp_path / "store"))
    assert done.returncode == ToolchainError.exit_code, done.stderr
    assert "fetching the wheels of the build tools failed (exit 1)" in done.stderr
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "the hashes are in matrix.lock" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_torch_with_another_hash_is_not_taken(locked: Wheelfab) -> None:
    lock = load_locked(locked.root)
    assert lock is not None
    torch = next(item for item in lock.torch if item.release == "2.13.0")
    relock(locked, torch.sha256)
    done = locked.run("build", CELL)
    assert done.returncode == BuildError.exit_code, done.stderr
    assert f"fetching the locked torch {torch.version} for CPython 3.11, SHA-256 {ZEROS}," in (
        done.stderr
    )
    assert "or run `wheelfab lock --upgrade` if the change is wanted" in done.stderr


def test_what_is_missing_is_named_with_the_command_that_adds_it(locked: Wheelfab) -> None:
    relock(locked, 'release = "2.13.0"', 'release = "2.12.0"')
    done = locked.run("plan", CELL)
    assert done.returncode == ToolchainError.exit_code
    assert (
        "error: matrix.lock: no torch 2.13.0 of https://download.pytorch.org/whl/cpu; "
        "run `wheelfab lock`, which adds what is missing"
    ) in done.stderr


def test_another_compiler_builds_but_nothing_is_promised(locked: Wheelfab, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gcc", "g++"):
        (folder / name).write_text(f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    lock = load_locked(locked.root)
    assert lock is not None
    told = f"is not the lock's: g++ {lock.compiler[0].version} ("
    free = locked.run("plan", CELL, PATH=path)
    assert free.returncode == 0
    assert f"warning: matrix.lock: compiler: g++ {host_compiler().version} (" in free.stderr
    assert told in free.stderr
    strict = locked.run("plan", "--locked", CELL, PATH=path)
    assert strict.returncode == ToolchainError.exit_code
    assert told in strict.stderr
    nowhere = f"unix://{tmp_path}/no.sock"  # in the container it is that one's compiler
    away = locked.run("build", "--container", "--locked", CELL, PATH=path, DOCKER_HOST=nowhere)
    assert away.returncode == InfrastructureError.exit_code
    assert "is not the lock's" not in away.stderr


def test_the_locked_tools_compile_whatever_the_path_has(locked: Wheelfab, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cmake", "ninja", "patchelf"):
        (folder / name).write_text("#!/bin/sh\necho the wrong $0 >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    (result,) = locked.json("build", CELL, PATH=f"{folder}:{os.environ['PATH']}")
    assert result["state"] == "ok"
    record = json.loads((locked.root / "build" / CELL / "build.json").read_text())
    lock = load_locked(ROOT)
    assert lock is not None
    assert record["compiler_locked"] is is_locked_compiler(lock, host_compiler())
    log = (locked.root / "build/logs/base.log").read_text()
    assert "/tools/" in log.partition("Run Build Command(s): ")[2].partition("\n")[0]
