"""The smallest whole example as its owner has it: a folder, nox, and an installed wheelfab."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from .beside import packages_in, show_ours
from .conftest import ROOT, Wheelfab

_TIMEOUT = 600


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nox, and wheelfab installed from a wheel, not from its sources."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT / "factory")]
    subprocess.run(wheel, check=True, timeout=_TIMEOUT)
    home = folder / "env"
    venv.create(home, with_pip=False)
    made = home / "bin" / "python"
    (file,) = folder.glob("wheelfab-*.whl")
    install = [*pip, "--python", str(made), "install", "--no-deps", "--no-index", str(file)]
    subprocess.run(install, check=True, timeout=_TIMEOUT)
    show_ours(packages_in(home))
    return made


def output(root: Path, *command: str) -> str:
    """What a command prints in ``root``, with nothing on the module path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=root,
        env={**environment, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_sessions_are_those_of_its_matrix(python: Path, tiny: Wheelfab) -> None:
    where = output(tiny.root, str(python), "-c", "import wheelfab; print(wheelfab.__file__)")
    assert Path(where.strip()).is_relative_to(python.parents[1])
    listed = output(tiny.root, str(python), "-m", "nox", "--list")
    names = re.findall(r"^[*-] (\S+) ->", listed, re.MULTILINE)
    assert {"plan", "build", "build-cu118", "build-cu121", "audit", "index"} <= set(names)
    assert not {"build-cpu", "tests", "lint"} & set(names)


def test_its_plan_has_each_cell(python: Path, tiny: Wheelfab) -> None:
    planned = output(tiny.root, str(python), "-m", "nox", "-s", "plan")
    for cell in ("torch2.4", "torch2.13", "torch2.10"):
        assert f"cu118-{cell}" in planned
        assert f"cu121-{cell}" in planned
