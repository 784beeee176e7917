"""Real builds of the tiny extension: what is compiled, what is shared, what fails and how."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from wheelfab.fatbin import archs_of
from wheelfab.wheel import verify_wheel

from .conftest import Wheelfab

CELLS = [f"{cuda}-torch{pin}" for cuda in ("cu118", "cu121") for pin in ("2.4", "2.13", "2.10")]


@pytest.fixture
def logged_compilers(tmp_path: Path) -> tuple[str, Path]:
    """A PATH on which gcc and g++ note each call in a file, then are themselves; and that file."""
    folder, log = tmp_path / "bin", tmp_path / "compilers.log"
    folder.mkdir()
    log.touch()
    for name in ("gcc", "g++"):
        real = shutil.which(name)
        wrapper = folder / name
        wrapper.write_text(f'#!/bin/sh\necho "$PWD {name} $*" >> "{log}"\nexec "{real}" "$@"\n')
        wrapper.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}", log


def compiled(log: Path) -> list[str]:
    """The project's own sources that a compiler was called for, CMake's try-outs left out."""
    calls = (line.split() for line in log.read_text().splitlines())
    sources = (call[-1] for call in calls if "-c" in call)
    return sorted(Path(source).name for source in sources if "/csrc/" in source)


def device_compiles(root: Path) -> list[str]:
    """What the device compilers said they compiled, of all logs."""
    text = "".join(path.read_text() for path in (root / "build/logs").glob("device-*.log"))
    lines = (line.split() for line in text.splitlines() if line.startswith("nvrtc "))
    return sorted(" ".join(line[1:4]) for line in lines)


def clear_logs(root: Path, log: Path) -> None:
    """Forget what was compiled so far."""
    log.write_text("")
    shutil.rmtree(root / "build/logs")


DEVICE_ADD = [
    f"{cuda} {target} add.cu"
    for cuda in ("11.8", "12.1")
    for target in ("compute_90", "sm_80", "sm_90")
]


def test_each_thing_is_compiled_once_and_only_what_changed_again(
    tiny: Wheelfab, logged_compilers: tuple[str, Path]
) -> None:
    path, log = logged_compilers
    results = tiny.json("build", PATH=path)
    assert [(item["cell"], item["state"]) for item in results] == [(cell, "ok") for cell in CELLS]
    # 2 CUDA releases x 3 pins: one host compile, two sets of images, three bindings.
    assert compiled(log) == ["base.c", *["binding.cpp"] * 3, *["images.S"] * 2]
    assert device_compiles(tiny.root) == DEVICE_ADD

    clear_logs(tiny.root, log)
    assert [item["state"] for item in tiny.json("build", PATH=path)] == ["ok"] * 6
    assert compiled(log) == []
    assert not (tiny.root / "build/logs").exists()

    with (tiny.root / "csrc/add.cu").open("a") as file:
        file.write("// touched\n")
    tiny.json("build", PATH=path)
    assert compiled(log) == ["images.S"] * 2
    assert device_compiles(tiny.root) == DEVICE_ADD

    clear_logs(tiny.root, log)
    matrix = tiny.root / "matrix.toml"
    text = matrix.read_text().replace('"2.13", "stable', '"2.13", "stable >= 2.11", "stable')
    pin = '\n[torch."stable >= 2.11"]\nheaders = "2.13.0"\nrun-on = ["2.13.0"]\n'
    matrix.write_text(text + pin)
    assert len(tiny.json("build", PATH=path)) == 8
    assert compiled(log) == ["binding.cpp"]
    assert not list((tiny.root / "build/logs").glob("device-*.log"))


def test_the_wheel_is_what_its_cell_says(tiny: Wheelfab) -> None:
    (result,) = tiny.json("build", "cu121-torch2.4")
    wheel = verify_wheel(Path(result["wheel"]))
    assert wheel.file == "tiny-1.0+cu121.torch2.4-cp310-abi3-manylinux_2_28_x86_64.whl"
    assert str(wheel.requirement("torch")) in ("torch<2.5,>=2.4.1", "torch>=2.4.1,<2.5")
    assert wheel.build is not None
    assert wheel.build["archs"] == ["8.0", "9.0", "9.0+PTX"]
    assert wheel.build["torch"]["cxx11_abi"] is False
    with ZipFile(wheel.path) as archive:
        library = Path(archive.extract("tiny/_kernels.so", tiny.root / "unpacked"))
    assert archs_of(library) == ("8.0", "9.0", "9.0+PTX")


def test_an_inherited_environment_changes_nothing(tiny: Wheelfab) -> None:
    hostile = {
        "TORCH_CUDA_ARCH_LIST": "5.0",
        "CUDAARCHS": "50",
        "CFLAGS": "-not-a-flag",
        "CXXFLAGS": "-not-a-flag",
        "LDFLAGS": "-not-a-flag",
        "NVCC_APPEND_FLAGS": "-not-a-flag",
        "NVCC_PREPEND_FLAGS": "-not-a-flag",
        "CXX": "not-a-compiler",
        "CC": "not-a-compiler",
    }
    (wheel,) = tiny.json("build", "cu121-torch2.10", **hostile)
    spoiled = Path(wheel["wheel"]).read_bytes()
    shutil.rmtree(tiny.root / "build")
    shutil.rmtree(tiny.root / "dist")
    (wheel,) = tiny.json("build", "cu121-torch2.10")
    assert Path(wheel["wheel"]).read_bytes() == spoiled


def test_the_printed_device_compile_makes_what_its_environment_says(tiny: Wheelfab) -> None:
    plan = tiny.json("plan", "cu121-torch2.10")
    (device,) = [action for action in plan["actions"] if action["kind"] == "device"]
    (command,) = device["commands"]
    assert command.count("8.0") == 1  # the archs are in the environment and nowhere else
    env = {
        name: os.environ[name] for name in ("PATH", "HOME", "WHEELFAB_STORE") if name in os.environ
    }
    typed = command.replace("TORCH_CUDA_ARCH_LIST='8.0;9.0+PTX'", "TORCH_CUDA_ARCH_LIST=8.0")
    done = by_hand(typed, tiny.root, env)
    assert done.returncode == 0, done.stderr
    (made,) = (tiny.root / "build/by-hand").rglob("add.fatbin")
    assert archs_of(made) == ("8.0",)
    done = by_hand(typed.replace("TORCH_CUDA_ARCH_LIST=8.0", ""), tiny.root, env)
    assert done.returncode != 0
    assert "TORCH_CUDA_ARCH_LIST" in done.stderr


def by_hand(command: str, root: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command as a person types it into a shell."""
    return subprocess.run(
        ["sh", "-c", command], cwd=root, env=env, check=False, capture_output=True, text=True
    )


def test_a_cell_that_fails_leaves_its_log_and_the_others_go_on(tiny: Wheelfab) -> None:
    binding = tiny.root / "csrc/binding.cpp"
    binding.write_text(binding.read_text() + "#if TORCH_VERSION_MINOR == 4\n#error four\n#endif\n")
    done = tiny.run("build", "cu121", "--json")
    assert done.returncode == 6
    states = {item["cell"]: item for item in json.loads(done.stdout)}
    assert {cell: item["state"] for cell, item in states.items()} == {
        "cu121-torch2.4": "failed",
        "cu121-torch2.13": "ok",
        "cu121-torch2.10": "ok",
    }
    assert "#error four" in states["cu121-torch2.4"]["reason"]
    assert "torch:torch2.4" in states["cu121-torch2.4"]["reason"]
    (log,) = (tiny.root / "build/logs").glob("torch-torch2.4-*.log")
    assert "#error four" in log.read_text()
    assert "cu121-torch2.4" in done.stderr
    record = json.loads((tiny.root / "build/cu121-torch2.4/build.json").read_text())
    assert record["state"] == "failed"
    assert record["wheel"] is None


def test_no_memory_and_no_disk_are_called_so(tiny: Wheelfab, tmp_path: Path) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    real = shutil.which("gcc")
    for text, expected in (
        ("Killed signal terminated program cc1", "out of memory"),
        ("cannot write: No space left on device", "disk full"),
    ):
        gcc = fake / "gcc"
        gcc.write_text(
            f'#!/bin/sh\ncase "$*" in *base.c*) echo "{text}" >&2; exit 1;; esac\n'
            f'exec "{real}" "$@"\n'
        )
        gcc.chmod(0o755)
        (fake / "g++").unlink(missing_ok=True)
        (fake / "g++").symlink_to(str(shutil.which("g++")))
        done = tiny.run("build", "cu121-torch2.10", "--json", PATH=f"{fake}:{os.environ['PATH']}")
        assert done.returncode == 6
        assert expected in json.loads(done.stdout)[0]["reason"]
