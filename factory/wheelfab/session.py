"""A project's own sessions: an environment with a built wheel, its torch and tools; commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelfab import console
from wheelfab.build import build
from wheelfab.errors import BuildError, FactoryError, UsageError
from wheelfab.locked import load_locked
from wheelfab.loops.environment import make_environment
from wheelfab.loops.interpreter import ask
from wheelfab.loops.site import pip_for, torch_for
from wheelfab.model import Matrix, Session
from wheelfab.plan import plan
from wheelfab.records import digest, file_digest, write_json
from wheelfab.run import attach, check, fetch_environment, run, tool_environment
from wheelfab.source import read_source
from wheelfab.store import Store, default_root
from wheelfab.toolchain.host import host_compiler
from wheelfab.variant import Cell, expand, select
from wheelfab.wheel import Wheel, read_wheel

_INSTALL_TIMEOUT = 1800.0
_READY = "ready.json"


class SessionError(FactoryError):
    """A command of a session ended badly."""

    exit_code = 1


def run_session(matrix: Matrix, name: str, arguments: Sequence[str], *, python: Path) -> None:
    """Run the commands of session ``name``; ``arguments`` are added to the last one.

    The environment is kept in ``build/sessions`` and made again when the wheel, torch or the
    requirements change. Raises ``SessionError`` when a command fails, ``UsageError`` when there is
    no such session.
    """
    session = matrix.sessions.get(name)
    if session is None:
        known = ", ".join(matrix.sessions) or "none"
        raise UsageError(f"no session {name!r}", next_step=f"matrix.toml has: {known}")
    home = _environment(matrix, name, session, python)
    environment = _command_environment(home)
    commands = [list(command) for command in session.run]
    commands[-1].extend(arguments)
    for command in commands:
        console.step("+ " + " ".join(command))
        code = attach(command, env=environment, cwd=matrix.root)
        if code != 0:
            raise SessionError(f"{command[0]} ended with exit code {code}", where=name)


def _environment(matrix: Matrix, name: str, session: Session, python: Path) -> Path:
    """The session's environment, made unless the one that is there has the same content."""
    cell, wheel = _wheel(matrix, session)
    identity = {
        "python": python.resolve(),
        "wheel": wheel.sha256 if wheel else None,
        "torch": session.torch,
        "requirements": session.requirements,
        "local": _local_projects(matrix.root, session.requirements),
    }
    home = matrix.root / "build" / "sessions" / f"{name}-{digest(identity)[:12]}"
    if (home / _READY).exists():
        return home
    for stale in home.parent.glob(f"{name}-{'?' * 12}"):  # of this session, not of NAME-more
        shutil.rmtree(stale)
    console.step(f"preparing {home.relative_to(matrix.root)}")
    if cell is not None and wheel is not None:
        _make_with_wheel(session, cell, wheel, home, python)
    else:
        argv = (str(python), "-I", "-m", "venv", "--without-pip", str(home))
        check(run(argv, env=tool_environment()), UsageError, doing="making an environment")
    _install(home / "bin" / "python", session.requirements, matrix.root)
    write_json(home / _READY, identity)
    return home


def _wheel(matrix: Matrix, session: Session) -> tuple[Cell | None, Wheel | None]:
    """The cell whose wheel the session wants, and that wheel, built now if need be."""
    if session.wheel is None:
        return None, None
    (cell,) = select(expand(matrix), [session.wheel])
    made = plan(matrix, [cell], read_source(matrix.root), host_compiler(), load_locked(matrix.root))
    (result,) = build(made, Store(default_root()))
    if result.wheel is None:
        raise BuildError(result.reason, where=cell.id, next_step="see build/logs/")
    return cell, read_wheel(result.wheel)


def _make_with_wheel(session: Session, cell: Cell, wheel: Wheel, home: Path, python: Path) -> None:
    """An environment with the wheel and, by hard links, the torch release that it is tried on."""
    interpreter = ask(python)
    if interpreter is None:
        raise UsageError("does not answer", where=str(python))
    release, store = session.torch or cell.pin.headers, Store(default_root())
    torch = torch_for(cell, release, interpreter, store, full=False)
    make_environment(home, wheel, torch, interpreter)


def _install(python: Path, requirements: Sequence[str], root: Path) -> None:
    if not requirements:
        return
    argv = (*pip_for(python), "install", "--quiet", *(_arguments(requirements)))
    done = run(argv, env=fetch_environment(), cwd=root, timeout=_INSTALL_TIMEOUT)
    check(done, UsageError, doing="installing the session's requirements")


def _arguments(requirements: Sequence[str]) -> tuple[str, ...]:
    """A folder (``./factory``) is installed editable, so that what runs is what is edited."""
    return tuple(
        arg for text in requirements for arg in (("-e", text) if text.startswith("./") else (text,))
    )


def _local_projects(root: Path, requirements: Sequence[str]) -> Mapping[str, str]:
    folders = (text for text in requirements if text.startswith("./"))
    return {folder: file_digest(root / folder / "pyproject.toml") for folder in folders}


def _command_environment(home: Path) -> dict[str, str]:
    docker = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
    kept = ("CI", *docker, "WHEELFAB_STORE", "NO_COLOR", "TERM", "FORCE_COLOR")
    return fetch_environment(
        {
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "VIRTUAL_ENV": str(home),
            **{name: os.environ[name] for name in kept if name in os.environ},
        }
    )
