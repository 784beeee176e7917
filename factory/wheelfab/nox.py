"""Registers nox sessions from ``matrix.toml``; a session's body is one ``wheelfab`` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

from wheelfab.errors import FactoryError
from wheelfab.matrix import load_matrix
from wheelfab.run import attach

_FACTORY = str(Path(__file__).resolve().parent.parent)


def register(matrix: str | Path = "matrix.toml") -> None:
    """Register wheelfab's sessions and those that ``matrix.toml`` names.

    They are ``plan``, ``build``, ``build-<variant>``, ``shell-<variant>``, ``reproduce``,
    ``cpu-import-loop``, ``gpu-import-loop``, ``audit``, ``compat``, ``index``, ``publish``. Call it
    from a ``noxfile.py``. A matrix that is not valid ends nox with the reason.
    """
    path = Path(matrix).resolve()
    try:
        loaded = load_matrix(path)
    except FactoryError as error:
        sys.exit(f"error: {error}")
    nox.options.sessions = ["build"]
    _command("plan", path, ("plan",), "show what would be built, and the cost")
    _command("build", path, ("build",), "build every cell of the matrix")
    for variant in loaded.variants:
        text = f"build the wheels of {variant.name}, one a torch pin"
        _command(f"build-{variant.name}", path, ("build", variant.name), text)
        text = f"a shell in the container that {variant.name} is built in with --container"
        _command(f"shell-{variant.name}", path, ("shell", variant.name), text)
    text = "build each cell twice here and once in a container, and compare the bytes"
    _command("reproduce", path, ("reproduce",), text, own_exit_code=True)
    _command("cpu-import-loop", path, ("loop",), "load every wheel again and again")
    text = "load and use every wheel on every GPU; without one, exit code 5"
    _command("gpu-import-loop", path, ("gpu-loop",), text, own_exit_code=True)
    _command("audit", path, ("audit",), "what is wrong with the wheels, from their files alone")
    _command("compat", path, ("compat",), "the table of what runs where")
    _command("index", path, ("index",), "a static simple index of the wheels")
    _command("publish", path, ("publish",), "put the complete set into a folder")
    for name, session in loaded.sessions.items():
        _command(name, path, ("session", name), session.help)


def _command(
    name: str, matrix: Path, argv: Sequence[str], text: str, *, own_exit_code: bool = False
) -> None:
    """One session without an environment of its own: nox's interpreter has all that it needs.

    nox ends with 1 whatever a session's command ended with; ``own_exit_code`` passes that on, and
    no later session is run.
    """

    @nox.session(name=name, venv_backend="none")
    def session(session: nox.Session) -> None:
        paths = [_FACTORY, *filter(None, [os.environ.get("PYTHONPATH")])]
        command = (sys.executable, "-m", "wheelfab", "--matrix", str(matrix), *argv)
        environment = {"PYTHONPATH": os.pathsep.join(paths)}
        if own_exit_code:
            code = attach(
                (*command, *session.posargs), env={**os.environ, **environment}, cwd=Path.cwd()
            )
            if code != 0:
                sys.exit(code)
        else:
            session.run(*command, *session.posargs, env=environment, external=True)

    session.__doc__ = text
