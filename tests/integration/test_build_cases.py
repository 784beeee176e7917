"""Failures from the field, provoked in builds of the tiny extension; docs/cases.md names them."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from wheelfab.errors import BuildError, InfrastructureError, ToolchainError
from wheelfab.store import default_root

from .conftest import ROOT, TINY, Wheelfab
from .test_toolchain_host import imitation

CELL = "cu121-torch2.10"
GLIBC = tuple(map(int, platform.libc_ver()[1].split(".")))
TOO_NEW = {
    "dlopen": """
#include <dlfcn.h>
int tiny_answer(void) { return dlopen(0, RTLD_NOW) ? 42 : 0; }
""",
    "pthread_create": """
#include <pthread.h>
static void* nothing(void* argument) { return argument; }
int tiny_answer(void) {
  pthread_t thread;
  return pthread_create(&thread, 0, nothing, 0) ? 0 : 42;
}
""",
}


@pytest.mark.skipif(GLIBC < (2, 34), reason="this glibc has no version of them above the floor")
@pytest.mark.parametrize("function", TOO_NEW)
def test_b17_a_symbol_above_the_glibc_floor_is_refused(tiny: Wheelfab, function: str) -> None:
    (tiny.root / "csrc/base.c").write_text(TOO_NEW[function])
    done = tiny.run("build", CELL, "--json")
    assert done.returncode == BuildError.exit_code
    (failed,) = json.loads(done.stdout)
    assert failed["state"] == "failed"
    assert "manylinux_2_28_x86_64" in failed["reason"]
    assert "too-recent versioned symbols" in failed["reason"]
    assert not (tiny.root / "dist").exists()


def on_a_small_disk(
    tiny: Wheelfab, folder: str, size: str, *argv: str, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run wheelfab with ``folder`` on a file system of ``size``, seen by it alone."""
    (tiny.root / folder).mkdir(parents=True, exist_ok=True)
    mounted = f'mount -t tmpfs -o size={size} tmpfs "{tiny.root / folder}"'
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount one: {tried.stderr.strip()}")
    command = [sys.executable, "-m", "wheelfab", *argv]
    paths = [str(ROOT / "factory"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mounted} && {before}exec "$@"', ".", *command],
        cwd=tiny.root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("folder", "size"), [("build/work", "64k"), ("build/store", "64k")])
def test_b61_a_full_disk_is_called_so_and_the_log_is_kept(
    tiny: Wheelfab, folder: str, size: str
) -> None:
    done = on_a_small_disk(tiny, folder, size, "build", "cu121", "--json")
    assert "Traceback" not in done.stderr
    assert done.returncode == BuildError.exit_code, done.stderr
    results = json.loads(done.stdout)
    assert {item["state"] for item in results} == {"failed"}
    assert all("disk full" in item["reason"] for item in results), results
    assert list((tiny.root / "build/logs").glob("*.log"))
    assert not (tiny.root / "dist").exists() or not list((tiny.root / "dist").iterdir())
    assert [item["state"] for item in tiny.json("build", "cu121")] == ["ok"] * 3


def test_b61_too_little_room_is_said_before_anything_is_compiled(tiny: Wheelfab) -> None:
    shutil.copytree(tiny.root, tiny.root / "copied")
    fill = 'cp -r "$0/copied/." "$0/small" && cd "$0/small" && '
    done = on_a_small_disk(tiny, "small", "20m", "build", before=fill)
    assert done.returncode == InfrastructureError.exit_code, done.stderr
    assert f"error: {tiny.root / 'small'}: 0.0 GiB free, 1.0 GiB needed; " in done.stderr
    assert "Traceback" not in done.stderr


def members(wheel: str) -> set[str]:
    """The names in a wheel."""
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_b62_a_module_added_and_deleted_is_not_shipped(tiny: Wheelfab) -> None:
    extra = tiny.root / "python/tiny/extra.py"
    extra.write_text("x = 1\n")
    (first,) = tiny.json("build", CELL)
    assert "tiny/extra.py" in members(first["wheel"])
    extra.unlink()
    (second,) = tiny.json("build", CELL)
    assert members(second["wheel"]) == members(first["wheel"]) - {"tiny/extra.py"}


def test_b62_what_was_compiled_for_one_source_is_in_no_other_wheel(tiny: Wheelfab) -> None:
    ask = "import sys; sys.path.insert(0, sys.argv[1]); import tiny; print(tiny.answer())"
    answers: list[int] = []
    for number in (42, 43, 42):
        (tiny.root / "csrc/base.c").write_text(f"int tiny_answer(void) {{ return {number}; }}\n")
        (result,) = tiny.json("build", CELL)
        folder = tiny.root / f"unpacked{len(answers)}"
        with ZipFile(result["wheel"]) as archive:
            archive.extractall(folder)
        done = subprocess.run(
            [sys.executable, "-c", ask, str(folder)], capture_output=True, text=True, check=True
        )
        answers.append(int(done.stdout))
    assert answers == [42, 43, 42]


def test_b65_the_same_bytes_under_another_umask_clock_language_and_folder(tmp_path: Path) -> None:
    made = []
    for umask, zone, language, folder, seed in (
        ("022", "UTC", "C.UTF-8", "a", "0"),
        ("077", "Asia/Kathmandu", "C", "another folder/with/more levels", "12345"),
    ):
        root = tmp_path / folder
        shutil.copytree(TINY, root, copy_function=shutil.copy if seed == "0" else shutil.copy2)
        command = [sys.executable, "-m", "wheelfab", "build", "cu121", "--json"]
        paths = [str(ROOT / "factory"), os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TZ": zone,
            "LC_ALL": language,
            "PYTHONHASHSEED": seed,
            "HOME": str(root),
            "WHEELFAB_STORE": str(default_root()),
        }
        done = subprocess.run(
            ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *command],
            cwd=root,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        wheels = [Path(item["wheel"]) for item in json.loads(done.stdout)]
        made.append({wheel.name: wheel.read_bytes() for wheel in wheels})
    assert len(made[0]) == 3
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("16.1.0", "g++ is 16.1.0, and nvcc of CUDA 13.0 takes gcc 6 to 15; install g++-15"),
        ("9.4.0", "g++ 9.4.0 is too old: 11.3 is wanted; install g++"),
    ],
)
def test_b66_a_host_compiler_that_nvcc_does_not_take_is_refused_before_compiling(
    tiny: Wheelfab, tmp_path: Path, version: str, says: str
) -> None:
    imitation(tmp_path / "bin", version=version)
    with (tiny.root / "matrix.toml").open("a") as file:
        file.write('\n[variants.cu130]\ncuda = "13.0"\ntoolchain = "pypi-nvcc"\n')
    done = tiny.run("build", "cu130", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == ToolchainError.exit_code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tiny.root / "build").exists()
