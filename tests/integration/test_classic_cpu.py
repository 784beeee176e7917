"""The classic binding on the CPU passes the tests of an installed wheel."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from packaging.version import Version

from .beside import install_beside, passed_beside, run_beside
from .sources import repository_with

ROWS = """
[torch."{series}"]
lowest = "{release}"
run-on = ["{release}"]

[variants.cpuc]
torch = ["{series}"]
"""


def test_the_classic_bindings_cpu_branch_is_as_right(tmp_path: Path) -> None:
    """Against the very torch that is installed here, since a classic wheel is for one series."""
    torch = Version(importlib.metadata.version("torch"))
    rows = ROWS.format(series=f"{torch.major}.{torch.minor}", release=torch.public)
    (result,) = repository_with(tmp_path / "repository", rows).json("build", "cpuc")
    python = install_beside(Path(result["wheel"]), tmp_path / "env")
    code = "import freewheel; print(freewheel.build()['torch']['abi'], freewheel.__version__)"
    said = run_beside(python, "-c", code).stdout.split()
    assert said == ["classic", f"0.1.0+cpuc.torch{torch.major}.{torch.minor}"]
    files = ("test_operations.py", "test_arguments.py")
    assert passed_beside(python, *(f"tests/installed/{file}" for file in files)) > 200
