"""Wheels from the builder's container through cibuildwheel: the host's bytes, or an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from wheelfab.containers import ContainerOptions, Engine
from wheelfab.errors import ToolchainError
from wheelfab.locked import LOCK, load_locked
from wheelfab.manylinux.box import BASE, TARGET, require_identifiers
from wheelfab.manylinux.config import DOOR, IDENTIFIER
from wheelfab.reproduce.report import ReproduceError
from wheelfab.wheel import read_wheel

from .conftest import ROOT, Wheelfab

CELL = "cu121-torch2.10"
DOOR_TEXT = '[project]\nname = "x"\nversion = "0"\nrequires-python = "{python}"\n'


@pytest.fixture
def locked(tiny: Wheelfab) -> Wheelfab:
    """The tiny extension with this repository's lock and images."""
    shutil.copy(ROOT / LOCK, tiny.root / LOCK)
    shutil.copytree(ROOT / "docker", tiny.root / "docker")
    return tiny


def asked(folder: Path, build: str, python: str = ">=3.10") -> Path:
    """A folder in which cibuildwheel is asked for the tags ``build``."""
    (folder / DOOR).mkdir()
    (folder / DOOR / "pyproject.toml").write_text(DOOR_TEXT.format(python=python))
    text = f'[tool.cibuildwheel]\nbuild = "{build}"\narchs = ["x86_64"]\n'
    (folder / "cibuildwheel.toml").write_text(text)
    return folder


def test_b72_a_tag_that_cibuildwheel_dropped_is_an_error(tmp_path: Path) -> None:
    gone = "cp313t-manylinux_x86_64"
    folder = asked(tmp_path, f"{IDENTIFIER} {gone}")
    require_identifiers(asked_one(tmp_path), (IDENTIFIER,))
    with pytest.raises(ToolchainError) as caught:
        require_identifiers(folder, (IDENTIFIER, gone))
    assert f"asked for {IDENTIFIER}, {gone}, cibuildwheel builds {IDENTIFIER}" in str(caught.value)
    assert f"{gone} is left out" in str(caught.value)


def asked_one(folder: Path) -> Path:
    """The same for one tag that it has, in a folder of its own."""
    one = folder / "one"
    one.mkdir()
    return asked(one, IDENTIFIER)


def test_b72_a_python_that_the_project_leaves_out_is_an_error(tmp_path: Path) -> None:
    folder = asked(tmp_path, IDENTIFIER, python=">=3.14")
    with pytest.raises(
        ToolchainError, match=f"asked for {IDENTIFIER}, cibuildwheel builds nothing"
    ):
        require_identifiers(folder, (IDENTIFIER,))


def test_the_image_has_what_cibuildwheel_looks_for_and_a_locked_compiler(engine: Engine) -> None:
    options = ContainerOptions(image=engine.image(TARGET, BASE), user="root")
    with engine.start(options) as container:
        for program in ("cp311-cp311/bin/python", "cp311-cp311/bin/pip", "cp39-cp39/bin/python"):
            done = container.run((f"/opt/python/{program}", "--version"))
            assert done.ok, done.stderr
        done = container.run(("sh", "-c", "sha256sum $(g++ -print-prog-name=cc1plus)"))
    lock = load_locked(ROOT)
    assert lock is not None
    assert done.stdout.split()[0] in {item.cc1plus_sha256 for item in lock.compiler}


def test_the_containers_wheel_has_the_hosts_bytes(engine: Engine, locked: Wheelfab) -> None:
    assert engine.image(TARGET, BASE)
    done = locked.run("reproduce", "--cell", CELL, "--json")
    (report,) = json.loads(done.stdout)
    assert [build["name"] for build in report["builds"]] == ["first", "second", "container"]
    boxed = report["builds"][2]
    assert (boxed["host_compiles"], boxed["device_compiles"]) == (3, 3)
    if report["compiler_locked"]:
        assert done.returncode == 0, done.stderr
        assert boxed["outcome"] == "same", boxed
        assert len({build["sha256"] for build in report["builds"]}) == 1
    else:  # a machine with another g++: nothing is compared, and it is said why
        assert done.returncode == ReproduceError.exit_code
        assert boxed["outcome"] == "not compared"
        assert "there and by" in boxed["reason"]


def test_build_with_container_puts_the_wheel_into_dist(engine: Engine, locked: Wheelfab) -> None:
    assert engine.image(TARGET, BASE)
    (result,) = locked.json("build", "--container", CELL)
    wheel = Path(result["wheel"])
    assert (result["state"], wheel.parent) == ("ok", locked.root / "dist")
    boxed = read_wheel(wheel)
    wheel.unlink()
    (again,) = locked.json("build", CELL)
    ours = read_wheel(Path(again["wheel"]))
    assert boxed.build is not None
    assert ours.build is not None
    if boxed.build["compilers"]["host"] == ours.build["compilers"]["host"]:
        assert boxed.sha256 == ours.sha256
    log = locked.root / "build/container" / CELL / "cibuildwheel.log"
    text = log.read_text()
    assert "auditwheel repair --only-plat --plat manylinux_2_28_x86_64" in text
    assert "Testing wheel..." in text
