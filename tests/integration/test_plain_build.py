"""A plain `pip wheel` of this repository: a CPU wheel that works beside a torch, or a sentence."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.version import Version

from wheelfab.machine import jobs
from wheelfab.wheel import Wheel, verify_wheel

from .sources import copy_sources

REMEDIES = """\
freewheel is compiled against the torch that it will run with, and there is none in this build \
environment. Either
  install torch first and build beside it:  pip install torch && \
pip install --no-build-isolation .
  or install a finished wheel from the index of your torch release (README.md,
  "Installing a published wheel").
"""
OPERATION = """
import json, freewheel, torch
y = freewheel.ops.rms_norm(torch.tensor([[3.0, 4.0]]), torch.ones(2), eps=0.0)
print(json.dumps([freewheel.__file__, y.tolist(), freewheel.build()["variant"]]))
"""
# What lies about in a repository that was built in.
LEFT_BEHIND = (
    *(".git/config", ".nox/x", ".venv/pyvenv.cfg", "build/store/x", "dist/freewheel.whl"),
    *("engine/freewheel/__pycache__/ops.pyc", "freewheel.egg-info/PKG-INFO"),
)
# The backend as pip calls it in an isolated environment; what stops it is told with the seconds.
HOOK = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
started = time.perf_counter()
from scikit_build_core import build
try:
    getattr(build, sys.argv[2])(*json.loads(sys.argv[3]))
    said = None
except SystemExit as stop:
    said = stop.code
print(json.dumps([said, time.process_time(), time.perf_counter() - started]))
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository's sources."""
    root = tmp_path_factory.mktemp("plain") / "repository"
    copy_sources(root)
    return root


def bare_path(folder: Path) -> str:
    """A PATH with what a build needs and no CUDA compiler; CMake is found as a Python package.

    Debian's Python asks for the compiler that made it by another name.
    """
    folder.mkdir()
    everywhere = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {str(sysconfig.get_config_var(name)).split()[0] for name in ("CC", "CXX")}
    for name in {"gcc", "g++", "as", "ld", "ar", "ranlib", "sh", "uname", "ninja", *own}:
        program = shutil.which(name, path=everywhere)
        assert program is not None, name
        (folder / name).symlink_to(program)
    assert shutil.which("nvcc", path=str(folder)) is None
    return str(folder)


def environment(path: str) -> dict[str, str]:
    """Nothing inherited but home, temporary folder and where Python looks."""
    names = ("HOME", "TMPDIR", "PYTHONPATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "PATH": path, "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs())}


def pip(*arguments: str, env: dict[str, str], cwd: Path) -> None:
    """Run pip without an index; it must succeed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive of a repository in which builds have left something."""
    folder = tmp_path_factory.mktemp("sdist")
    root = folder / "repository"
    copy_sources(root)
    for name in LEFT_BEHIND:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("left behind")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(
        [*command, str(root)],
        env=environment(bare_path(folder / "bin")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.glob("*.tar.gz")
    assert archive.name == "freewheel-0.1.0.tar.gz"
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    return folder / "freewheel-0.1.0"


def test_the_source_archive_is_what_is_tracked(archived: Path, repository: Path) -> None:
    """All that git tracks but CI and images, PKG-INFO, and nothing that a build left."""
    tracked = files_of(repository)
    kept = {name for name in tracked if not name.startswith((".ci/", "docker/"))}
    assert files_of(archived) == kept | {"PKG-INFO"}
    for name in kept:
        assert (archived / name).read_bytes() == (repository / name).read_bytes(), name


def files_of(root: Path) -> set[str]:
    """The files under ``root``."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def plain(archived: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """The wheel of `pip wheel --no-build-isolation .` beside this interpreter's torch.

    In the unpacked source archive: the repository has all of its files, and these suffice.
    """
    out = tmp_path_factory.mktemp("wheel")
    env = environment(bare_path(out / "bin"))
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(out))
    pip("wheel", *options, ".", env=env, cwd=archived)
    (wheel,) = out.glob("*.whl")
    return verify_wheel(wheel)


def test_the_wheel_says_against_which_torch_it_was_built(plain: Wheel) -> None:
    """B08: the torch beside it, not one that a resolver chose; and one that it works with."""
    torch = importlib.metadata.version("torch")
    assert plain.build is not None
    assert plain.build["variant"] == "cpu"
    assert plain.build["cuda"] is None
    assert plain.build["archs"] == []
    assert plain.build["torch"]["headers"] == torch
    need = plain.requirement("torch")
    assert need is not None
    assert need.specifier.contains(Version(torch).public)
    assert plain.build["torch"]["requirement"] == str(need.specifier)


def test_the_wheel_holds_all_three_libraries_and_no_source(plain: Wheel) -> None:
    with ZipFile(plain.path) as archive:
        names = set(archive.namelist())
    libraries = {name for name in names if name.endswith(".so")}
    assert libraries == {f"freewheel/{name}.so" for name in ("_C.abi3", "_kernels", "_torch")}
    assert not [name for name in names if name.endswith((".cpp", ".h", ".cu", ".cmake", ".pyc"))]


def test_the_installed_wheel_answers(plain: Wheel, tmp_path: Path) -> None:
    env = environment(os.environ["PATH"])
    site = tmp_path / "site"
    pip(
        *("install", "--no-deps", "--no-index", "--target", str(site), str(plain.path)),
        env=env,
        cwd=tmp_path,
    )
    env["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [env.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", OPERATION],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, rows, variant = json.loads(done.stdout)
    assert Path(file).is_relative_to(site)
    assert variant == "cpu"
    root_mean_square = 12.5**0.5
    assert rows == [pytest.approx([3 / root_mean_square, 4 / root_mean_square], rel=1e-6)]


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What build isolation installs: the backend and its own dependencies, hence no torch."""
    folder = tmp_path_factory.mktemp("isolated")
    for name in ("scikit_build_core", "packaging", "pathspec"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent)
    return folder


def call(
    hook: str, arguments: list[object], isolated: Path, root: Path
) -> tuple[object, float, float]:
    """What a hook of the backend ended with in an interpreter without torch, and its seconds.

    First those of the processor, which other work on the machine does not stretch, with the start
    of the interpreter; then those of the clock.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", HOOK, str(isolated), hook, json.dumps(arguments)],
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, processor, clock = json.loads(done.stdout.splitlines()[-1])
    return said, processor, clock


@pytest.mark.parametrize("hook", ["prepare_metadata_for_build_wheel", "build_wheel"])
def test_under_isolation_it_stops_at_once_and_names_both_remedies(
    hook: str, isolated: Path, repository: Path, tmp_path: Path
) -> None:
    """B07: within a second, of the processor: the machine may have other work than this."""
    said, processor, clock = call(hook, [str(tmp_path)], isolated, repository)
    assert f"{said}\n" == REMEDIES
    assert processor < 1, f"{processor:.2f} s of the processor, {clock:.2f} s of the clock"
    assert list(tmp_path.iterdir()) == []


def test_what_isolation_installs_first_asks_for_no_torch(isolated: Path, repository: Path) -> None:
    """A torch among the build requirements would be the newest one, not the user's (B08)."""
    said, *_ = call("get_requires_for_build_wheel", [{}], isolated, repository)
    assert said is None
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires = ["scikit-build-core>=1.1"]' in text
