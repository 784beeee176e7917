"""The types of the built wheel as its users' mypy finds them, where it is installed."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from wheelfab.loops.cell import built_wheel
from wheelfab.matrix import load_matrix
from wheelfab.variant import expand

from .beside import packages_in
from .conftest import ROOT

_TIMEOUT = 300
RIGHT = """
import freewheel
from freewheel import _C, device, ops

def archs() -> list[str]:
    return _C.kernels()["archs"].split()

def reason() -> str:
    state = device.state()
    return "" if state.is_ready() else state.reason

def fits(version: str) -> bool:
    freewheel.warm_up("cuda:0")
    return freewheel.__version__ == version and ops.cpu_isa() != "avx512"
"""
WRONG = """
import freewheel
from freewheel import _C, ops

number: int = _C.kernels()["archs"]
_C.kernels()["arch"]
_C.nothing()
_C.interpreter() + ""
ops.cpu_isa("avx2")
freewheel.warmup("cuda")
"""
ERRORS = {
    4: "assignment",
    5: "typeddict-item",
    6: "attr-defined",
    7: "operator",
    8: "call-arg",
    9: "attr-defined",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the built wheel alone: where torch is not installed, its types are Any."""
    home = tmp_path_factory.mktemp("typed") / "env"
    venv.create(home, with_pip=False)
    cells = expand(load_matrix(ROOT / "matrix.toml")).cells
    with ZipFile(built_wheel(ROOT, cells[0]).path) as wheel:
        wheel.extractall(packages_in(home))
    return home / "bin" / "python"


def check(python: Path, folder: Path, text: str) -> tuple[int, dict[int, str]]:
    """Mypy's exit code for a file with ``text``, and the code of the error in each line."""
    (folder / "user.py").write_text(text.lstrip("\n"))
    options = ("--strict", "--no-error-summary", "--python-executable", str(python))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(folder), "user.py"],
        cwd=folder,
        env={},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )
    assert done.stderr == ""
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = {int(line.split(":")[1]): line.rpartition("[")[2].rstrip("]") for line in lines}
    assert len(found) == len(lines), done.stdout
    return done.returncode, found


def test_a_users_file_passes_mypy_strict(python: Path, tmp_path: Path) -> None:
    assert check(python, tmp_path, RIGHT) == (0, {})


def test_a_wrong_use_is_found(python: Path, tmp_path: Path) -> None:
    assert check(python, tmp_path, WRONG) == (1, ERRORS)
