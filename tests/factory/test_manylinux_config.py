"""cibuildwheel's configuration: what the matrix says, and nothing of this machine."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from wheelfab.manylinux.config import configuration, door, load_command, repair_command
from wheelfab.plan import Plan, plan
from wheelfab.source import Source
from wheelfab.variant import Cell, expand, select

from .lockmaker import make_locked
from .matrixmaker import MATRIX, load
from .test_plan import COMPILER, FILES

LOADS = """
[[project.load]]
stage = "more"
run = "assert 'a b' != \\"c\\""

[[project.load]]
stage = "operation"
run = "import torch"
needs-torch = true
"""


@pytest.fixture
def made(tmp_path: Path) -> tuple[Plan, Cell]:
    """A plan of one cell, and the cell."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    matrix = load(tmp_path, MATRIX.replace('[torch."2.4"]', LOADS + '\n[torch."2.4"]', 1))
    (cell,) = select(expand(matrix), ["cu121-torch2.10"])
    source = Source(root=tmp_path, commit="c" * 40, epoch=1)
    return plan(matrix, [cell], source, COMPILER, make_locked(COMPILER)), cell


def table(made: tuple[Plan, Cell]) -> dict[str, Any]:
    """The configuration, read."""
    text = configuration(
        *made,
        image="sha256:" + "d" * 64,
        mounts=(("/store of mine", "/inputs:ro"),),
        tools="/inputs/tools/x/content",
    )
    found: dict[str, Any] = tomllib.loads(text)["tool"]["cibuildwheel"]
    return found


def test_one_python_one_image_by_its_id_no_network(made: tuple[Plan, Cell]) -> None:
    found = table(made)
    assert found["build"] == "cp311-manylinux_x86_64"
    assert found["manylinux-x86_64-image"] == "sha256:" + "d" * 64
    assert found["container-engine"] == {
        "name": "docker",
        "create-args": ["--network=none", "--volume=/store of mine:/inputs:ro"],
        "disable-host-mount": True,
    }
    assert found["build-frontend"] == {"name": "build", "args": ["--no-isolation"]}
    assert found["audit-command"] == ""


def test_the_repair_is_the_lines_own_with_its_exclusions(made: tuple[Plan, Cell]) -> None:
    repair, _, finish = repair_command(*made).partition(" && ")
    words = shlex.split(repair)
    assert words[:4] == ["python", "-m", "auditwheel", "repair"]
    assert words[words.index("--plat") + 1] == "manylinux_2_28_x86_64"
    excluded = [words[at + 1] for at, word in enumerate(words) if word == "--exclude"]
    assert excluded == ["libtorch*.so", "libc10*.so"]
    assert words[-3:] == ["--wheel-dir", "{dest_dir}", "{wheel}"]
    assert shlex.split(finish) == ["python", "-m", "wheelfab.manylinux.finish", "{dest_dir}"]


def test_the_load_is_the_matrixs_without_torch(made: tuple[Plan, Cell]) -> None:
    assert shlex.split(load_command(made[0])) == [
        *("python", "-c"),
        "import demo\nassert 'a b' != \"c\"",
    ]


def test_the_door_leads_to_the_line(made: tuple[Plan, Cell]) -> None:
    assert tomllib.loads(door(made[0])) == {
        "build-system": {"requires": [], "build-backend": "wheelfab.manylinux.hook"},
        "project": {"name": "demo", "version": "0", "requires-python": ">=3.10"},
    }
