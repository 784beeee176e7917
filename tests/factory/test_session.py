"""A project's own sessions: order, arguments, failures, and when the environment is made again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from wheelfab import session as module
from wheelfab.errors import UsageError
from wheelfab.matrix import Matrix
from wheelfab.run import Completed
from wheelfab.session import SessionError, run_session

from .matrixmaker import MATRIX, load

PYTHON = Path("/usr/bin/python3")
SESSIONS = """
[sessions.lint]
help = "look"
requirements = ["ruff==0.1", "./factory"]
run = [["ruff", "check"], ["mypy", "--strict"]]

[sessions.lint-cpp]
help = "look at C++"
run = [["clang-format"]]
"""


class Seams:
    """The processes that a session would start."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, ...]] = []
        self.attached: list[tuple[str, ...]] = []
        self.environments: list[Mapping[str, str]] = []
        self.codes: dict[str, int] = {}

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        """Note a process of the preparation; making a virtual environment makes its folder."""
        self.ran.append(tuple(argv))
        if "venv" in argv:
            Path(argv[-1]).mkdir(parents=True)
        return Completed(argv=tuple(argv), returncode=0, stdout="", stderr="", seconds=0.0)

    def attach(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> int:
        """Note a command of the session."""
        assert cwd.is_dir()
        self.attached.append(tuple(argv))
        self.environments.append(env)
        return self.codes.get(argv[0], 0)


@pytest.fixture
def seams(monkeypatch: pytest.MonkeyPatch) -> Seams:
    """Nothing is started."""
    seams = Seams()
    monkeypatch.setattr(module, "run", seams.run)
    monkeypatch.setattr(module, "attach", seams.attach)
    monkeypatch.setattr(module, "pip_for", lambda python: ("pip", f"--python={python}"))
    return seams


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    """A matrix with two sessions, one named like the start of the other."""
    (tmp_path / "factory").mkdir()
    (tmp_path / "factory/pyproject.toml").write_text("[project]\n")
    return load(tmp_path, MATRIX + SESSIONS)


def homes(matrix: Matrix) -> set[str]:
    """The environments that there are, by the session's name."""
    folders = (matrix.root / "build" / "sessions").iterdir()
    return {folder.name.rpartition("-")[0] for folder in folders}


def test_commands_run_in_order_and_the_last_one_takes_the_arguments(
    matrix: Matrix, seams: Seams
) -> None:
    run_session(matrix, "lint", ["-v", "x.py"], python=PYTHON)
    assert seams.attached == [("ruff", "check"), ("mypy", "--strict", "-v", "x.py")]


def test_a_command_that_fails_ends_the_session_with_its_name_and_code(
    matrix: Matrix, seams: Seams
) -> None:
    seams.codes["ruff"] = 3
    with pytest.raises(SessionError, match=r"^lint: ruff ended with exit code 3$"):
        run_session(matrix, "lint", [], python=PYTHON)
    assert seams.attached == [("ruff", "check")]


def test_an_unknown_session_is_answered_with_those_that_there_are(
    matrix: Matrix, seams: Seams
) -> None:
    with pytest.raises(UsageError) as caught:
        run_session(matrix, "lnit", [], python=PYTHON)
    assert str(caught.value) == "no session 'lnit'; matrix.toml has: lint, lint-cpp"
    assert seams.ran == []


def test_the_environment_is_made_once_and_folders_are_installed_editable(
    matrix: Matrix, seams: Seams
) -> None:
    run_session(matrix, "lint", [], python=PYTHON)
    made, installed = seams.ran
    assert made[:4] == (str(PYTHON), "-I", "-m", "venv")
    assert installed[1] == f"--python={made[-1]}/bin/python"
    assert installed[2:] == ("install", "--quiet", "ruff==0.1", "-e", "./factory")
    run_session(matrix, "lint", [], python=PYTHON)
    assert len(seams.ran) == 2


def test_it_is_made_again_when_a_local_project_changes(matrix: Matrix, seams: Seams) -> None:
    run_session(matrix, "lint", [], python=PYTHON)
    (matrix.root / "factory/pyproject.toml").write_text("[project]\nname = 'x'\n")
    run_session(matrix, "lint", [], python=PYTHON)
    assert len(seams.ran) == 4
    assert len(list((matrix.root / "build/sessions").iterdir())) == 1


def test_an_environment_that_was_not_finished_is_made_again(matrix: Matrix, seams: Seams) -> None:
    run_session(matrix, "lint", [], python=PYTHON)
    (ready,) = (matrix.root / "build/sessions").glob("*/ready.json")
    ready.unlink()
    (ready.parent / "half").touch()
    run_session(matrix, "lint", [], python=PYTHON)
    assert len(seams.ran) == 4
    assert not (ready.parent / "half").exists()


@pytest.mark.usefixtures("seams")
def test_another_session_with_a_longer_name_keeps_its_environment(matrix: Matrix) -> None:
    run_session(matrix, "lint-cpp", [], python=PYTHON)
    run_session(matrix, "lint", [], python=PYTHON)
    assert homes(matrix) == {"lint", "lint-cpp"}


def test_a_command_sees_the_environments_programs_first_and_little_else(
    matrix: Matrix, seams: Seams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "5.0")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("NO_COLOR", "1")
    run_session(matrix, "lint-cpp", [], python=PYTHON)
    (environment,) = seams.environments
    (home,) = (matrix.root / "build/sessions").iterdir()
    assert environment["PATH"].split(os.pathsep)[0] == str(home / "bin")
    assert environment["VIRTUAL_ENV"] == str(home)
    assert environment["NO_COLOR"] == "1"
    assert not {"TORCH_CUDA_ARCH_LIST", "PYTHONPATH"} & set(environment)
