"""``python -m freewheel doctor`` from the installed wheel, beside real and planted torches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import freewheel
from tests.installed.machine import PACKAGE, start


def doctor(folder: Path | None, *options: str, **settings: str) -> Any:
    """``python -m freewheel doctor`` in a fresh interpreter, with time for a busy machine."""
    code = "from freewheel.doctor import report\nreport._LIMIT = 120.0\n"
    code += f"import runpy, sys\nsys.argv[1:] = {['doctor', *options]!r}\n"
    code += "runpy.run_module('freewheel', run_name='__main__', alter_sys=True)"
    return start(code, folder, **settings)


def quick(folder: Path | None, *options: str, **settings: str) -> Any:
    """The doctor without its import of torch."""
    return doctor(folder, "--no-torch", *options, **settings)


def plant(folder: Path, version: str, cuda: str | None, body: str = "") -> str:
    """A package that passes for torch as far as its files go; the folder for PYTHONPATH."""
    package, metadata = folder / "torch", folder / f"torch-{version}.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    text = f"__version__ = {version!r}\ncuda: str | None = {cuda!r}\n"
    (package / "version.py").write_text(text, encoding="utf-8")
    (package / "__init__.py").write_text(
        f"from torch import version\nfrom torch.version import __version__\n{body}\n",
        encoding="utf-8",
    )
    (metadata / "METADATA").write_text(f"Name: torch\nVersion: {version}\n", encoding="utf-8")
    return str(folder)


def test_the_doctor_of_a_sound_machine(driver: Path, tmp_path: Path) -> None:
    path = plant(tmp_path, "2.13.0", "12.6")
    done = quick(driver, FAKECUDA_DEVICES="8.0,7.5", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "525.60.13" in lines["needs driver"]
    assert lines["torch"].endswith("here 2.13.0: fits")
    assert lines["CUDA"].endswith("here torch is for CUDA 12.6: fits")
    assert "runs 8.0" in lines["device 0"]
    assert "no code for it" in lines["device 1"]
    assert "passed: 2 devices" in lines["asked: count"]
    assert "ready: 1 device" in lines["verdict"]


def test_b49_the_doctor_beside_a_cpu_torch(driver: Path, tmp_path: Path) -> None:
    """The wheel is sound and works on the CPU; a GPU needs another torch."""
    done = quick(driver, PYTHONPATH=plant(tmp_path, "2.13.0+cpu", None))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "usable on the CPU: torch 2.13.0+cpu is a CPU build" in done.stdout
    assert "next step       install a CUDA build of torch" in done.stdout


def test_b49_the_doctor_beside_another_torch(driver: Path, tmp_path: Path) -> None:
    done = quick(driver, "--json", PYTHONPATH=plant(tmp_path, "2.3.1", "12.1"))
    assert done.returncode == 2
    facts = json.loads(done.stdout)
    assert facts["fits"][0] == {
        "what": "torch",
        "built_for": f"{facts['torch']['wanted']} (with {facts['torch']['built_with']})",
        "found": "2.3.1",
        "fits": False,
    }
    assert "but torch 2.3.1 is installed" in facts["verdict"]


@pytest.mark.parametrize(
    ("fail", "code", "status", "layers"),
    [
        ("cuInit=100", 1, "no_device", [True, False, None, None]),
        ("cuInit=segv", 2, "driver_crashed", [True, False, None, None]),
        ("load=segv", 2, "driver_crashed", [False, None, None, None]),
        ("cuDeviceGetCount=3", 2, "unknown", [True, True, False, None]),
    ],
)
def test_row_5_the_doctor_for_a_machine(
    driver: Path, fail: str, code: int, status: str, layers: list[bool | None]
) -> None:
    done = quick(driver, "--json", FAKECUDA_FAIL=fail)
    assert done.returncode == code, done.stderr
    facts = json.loads(done.stdout)
    assert facts["state"]["status"] == status
    assert facts["exit_code"] == code
    assert facts["next_step"]
    assert facts["torch"]["fits"]
    assert facts["wheel"]["archs"] == freewheel.build()["archs"]
    assert {part["name"]: part["usable"] for part in facts["parts"]} == {
        "_C": True,
        "_kernels.so": True,
        "_torch.so": None,
        "_probe": True,
    }
    files, *rest = facts["state"]["layers"]
    assert files["layer"] == "files"
    assert files["passed"]
    assert [layer["passed"] for layer in rest] == layers
    first = next(layer for layer in rest if not layer["passed"])
    assert set(first) == {"layer", "passed", "reason", "code", "name"}
    if fail == "cuInit=100":
        assert (first["code"], first["name"]) == (100, "CUDA_ERROR_NO_DEVICE")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'GPU 0: Fake (UUID: GPU-1)'", "GPU 0: Fake (UUID: GPU-1) (exit 0)"),
        ("echo 'No devices were found'; exit 0", "No devices were found (exit 0)"),
        ("exit 9", "(exit 9)"),
    ],
)
def test_row_28_the_state_is_the_drivers_whatever_nvidia_smi_says(
    driver: Path, tmp_path: Path, script: str, words: str
) -> None:
    """B28: both words are shown, and where they differ it is said."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for fail, status, count in (("", "ready", 1), ("cuInit=100", "no_device", 0)):
        facts = json.loads(quick(driver, "--json", FAKECUDA_FAIL=fail, PATH=path).stdout)
        assert (facts["state"]["status"], facts["nvidia_smi"]) == (status, words)
        listed = int("GPU 0" in words)
        note = f"nvidia-smi lists {listed} devices, the driver {count}: the driver counts"
        assert (note in facts["notes"]) == (listed != count)


def test_the_doctor_imports_no_torch_itself(driver: Path) -> None:
    code = (
        "import sys\nfrom freewheel.doctor import examine\nreport = examine()\n"
        "print('torch' in sys.modules, report.imported.passed, report.imported.refused)"
    )
    assert start(code, driver).stdout.split() == ["False", "True"]


def test_b45_the_doctor_shows_libstdcxx_and_who_brought_it(driver: Path) -> None:
    done = doctor(driver, "--json")
    imported = json.loads(done.stdout)["imported"]
    assert imported["passed"], imported["reason"]
    assert Path(imported["stdcxx"]).name.startswith("libstdc++.so.6")
    assert imported["glibcxx"].startswith("GLIBCXX_3.4.")
    assert imported["first_user"] is not None
    assert imported["elsewhere"] == []
    assert len(imported["libraries"]["libtorch_cpu.so"]) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with SIGSEGV"),
        ("import os; os._exit(7)", "ended with exit code 7"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise OSError('libcudart.so.12: cannot open')", "OSError: libcudart.so.12"),
        ("print('{}'); import sys; sys.stderr.write('noise'); raise ImportError('x')", "ImportEr"),
    ],
)
def test_b48_a_torch_that_breaks_takes_nothing_with_it(
    driver: Path, tmp_path: Path, body: str, words: str
) -> None:
    done = doctor(driver, "--json", PYTHONPATH=plant(tmp_path, "2.13.0", "12.6", body))
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["state"]["status"]) == (2, "ready")
    assert facts["imported"]["passed"] is False
    assert words in facts["imported"]["reason"]
    assert words in facts["verdict"]


def test_a_torch_that_never_comes_leaves_time_for_the_rest(driver: Path, tmp_path: Path) -> None:
    path = plant(tmp_path, "2.13.0", "12.6", "import time; time.sleep(60)")
    code = (
        "from freewheel.doctor import report, render\nreport._LIMIT = 1.5\n"
        "print(render(report.examine(), as_json=True))"
    )
    begun = time.monotonic()
    facts = json.loads(start(code, driver, PYTHONPATH=path).stdout)
    assert time.monotonic() - begun < 20
    assert facts["imported"]["passed"] is None
    assert facts["imported"]["reason"].startswith("import torch did not end within ")
    assert facts["exit_code"] == 0  # nothing else speaks against it


def library(folder: Path, name: str, text: str, *options: str) -> Path:
    """A shared library, compiled here."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}.c"
    source.write_text(text, encoding="utf-8")
    command = ["gcc", "-shared", "-fPIC", "-o", str(folder / name), f"-Wl,-soname,{name}"]
    subprocess.run([*command, str(source), *options], check=True)
    return folder / name


def test_b15_the_folder_that_breaks_the_import_is_named(driver: Path, tmp_path: Path) -> None:
    """An older library of the same name wins over the one that torch brings."""
    name = "libnvJitLink.so.12"
    site, old = tmp_path / "site", tmp_path / "old"
    versions = {"V1": "{ global: jit; };", "V2": "{ global: jit; };"}
    for folder, version in ((site / "lib", "V2"), (old, "V1")):
        script = tmp_path / f"{version}.map"
        script.write_text(f"{version} {versions[version]}\n", encoding="utf-8")
        library(folder, name, "int jit(void) { return 1; }", f"-Wl,--version-script={script}")
    user = library(
        site / "lib",
        "libuser.so",
        "int jit(void); int use(void) { return jit(); }",
        f"-L{site / 'lib'}",
        f"-l:{name}",
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN",
        "-Wl,-z,now",
    )
    body = f"import ctypes, os; ctypes.CDLL({str(user)!r}, mode=os.RTLD_NOW)"
    path = plant(site, "2.13.0", "12.6", body)
    facts = json.loads(
        doctor(None, "--json", LD_LIBRARY_PATH=f"{driver}:{old}", PYTHONPATH=path).stdout
    )
    assert "version `V2' not found" in facts["verdict"]
    assert f"LD_LIBRARY_PATH puts {old} first for {name}" in facts["notes"]
    assert "without LD_LIBRARY_PATH the import passes" in facts["notes"]
    assert str(old) in facts["next_step"]
    assert "out of LD_LIBRARY_PATH" in facts["next_step"]


def test_b45_another_libstdcxx_in_front_is_told(driver: Path, tmp_path: Path) -> None:
    """The polluted host: the import may pass, and still it is another library."""
    own = json.loads(doctor(driver, "--json").stdout)["imported"]["stdcxx"]
    shutil.copy(own, tmp_path / "libstdc++.so.6")
    facts = json.loads(doctor(None, "--json", LD_LIBRARY_PATH=f"{driver}:{tmp_path}").stdout)
    planted = str(tmp_path / "libstdc++.so.6")
    assert facts["imported"]["stdcxx"] == planted
    assert f"libstdc++.so.6 is {planted}; without LD_LIBRARY_PATH it is {own}" in facts["notes"]
    assert f"LD_LIBRARY_PATH puts {tmp_path} first for libstdc++.so.6" in facts["state"]["notes"]


def test_the_doctor_sees_that_torch_is_missing(driver: Path, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "freewheel")
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom freewheel.doctor import examine\n"
        "report = examine()\nprint(report.exit_code, report.verdict)"
    )
    done = start(code, driver, "-I", "-S")
    assert done.stdout.startswith("2 broken: the wheel is for torch"), done.stderr
    assert "torch is not installed" in done.stdout
