"""One cell built in the container by cibuildwheel, from a folder with all that it may see."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import wheelfab
from wheelfab import console
from wheelfab.containers import Engine, NoEngine, find_engine
from wheelfab.copies import copy_project
from wheelfab.errors import BuildError, InfrastructureError, ToolchainError
from wheelfab.locked import ADD, LOCK, RENEW, Locked
from wheelfab.manylinux.config import (
    COMPILED,
    DOOR,
    IDENTIFIER,
    INPUTS,
    LINE,
    OBJECTS,
    SOURCES,
    configuration,
    door,
)
from wheelfab.manylinux.order import write_order
from wheelfab.plan import Plan
from wheelfab.records import write_text
from wheelfab.run import Completed, fetch_environment, run
from wheelfab.store import Store
from wheelfab.toolchain.tools import KIND, fetch_tools, tools_key
from wheelfab.variant import Cell

BASE = "debian-12"  # whose g++ is the lock's compiler
TARGET = "wheel-builder"
_TIMEOUT = 3600.0
_DOCKER = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """The image that wheels are built in. ``base_digest`` is that of its base's content."""

    image: str
    base: str
    base_digest: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxedWheel:
    """A wheel that cibuildwheel left, and what the compilers did for it. ``seconds`` in all."""

    wheel: Path
    seconds: float
    host_compiles: int
    device_compiles: int


def find_box(
    root: Path, locked: Locked | None, base: str = BASE, *, only_listed: bool = False
) -> Box:
    """The builder's image, built if need be.

    Raises ``InfrastructureError`` where no engine answers, ``ToolchainError`` for a base that has
    another digest than the lock's, with ``only_listed`` also for one that the lock does not list.
    """
    engine: Engine | NoEngine = find_engine(root)
    if isinstance(engine, NoEngine):
        raise InfrastructureError(
            engine.reason, next_step="start dockerd, or set DOCKER_HOST to a Docker engine's socket"
        )
    if locked is None or not locked.container:
        raise ToolchainError("has nothing for a container", where=LOCK, next_step=ADD)
    digest = engine.base_digest(base)
    if digest is not None:  # where there is none, ``image`` says how to make it
        _compare_base(locked, base, digest, only_listed=only_listed)
    return Box(image=engine.image(TARGET, base), base=base, base_digest=digest)


def _compare_base(locked: Locked, base: str, digest: str, *, only_listed: bool) -> None:
    where = f"{LOCK}: image {base}"
    known = locked.image_of(base)
    if known is None:
        flaw = ToolchainError(f"{digest} is not in the lock", where=where, next_step=ADD)
        if only_listed:
            raise flaw
        console.warn(str(flaw))
    elif known.digest != digest:
        what = f"{digest} here, {known.digest} in the lock"
        raise ToolchainError(what, where=where, next_step=RENEW)


def build_in_box(plan: Plan, cell: Cell, box: Box, folder: Path, store: Store) -> BoxedWheel:
    """Build ``cell`` in ``box`` with ``folder`` as cibuildwheel's working folder.

    Downloads come from ``store`` and must be there: the container has no network. What is compiled
    lies in ``objects`` beside ``folder``, for the next cell.

    Raises ``ToolchainError`` when cibuildwheel would skip what is asked, ``BuildError`` when it
    fails or leaves no wheel.
    """
    locked = plan.locked
    if locked is None:
        raise ToolchainError("there is none", where=LOCK, next_step=ADD)
    fetch_tools(store, locked.container)
    lay_out(plan, cell, folder)
    tools = str(INPUTS / KIND / tools_key(locked.container) / "content")
    objects = folder.parent / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    mounts = ((str(store.root), f"{INPUTS}:ro"), (str(objects), str(OBJECTS)))
    text = configuration(plan, cell, image=box.image, mounts=mounts, tools=tools)
    write_text(folder / "cibuildwheel.toml", text)
    require_identifiers(folder, (IDENTIFIER,))
    console.step(f"{cell.id}: cibuildwheel in {TARGET} on {box.base}")
    done = _cibuildwheel(folder, "--output-dir", "out", log=folder / "cibuildwheel.log")
    wheels = sorted((folder / "out").glob("*.whl"))
    if not done.ok or len(wheels) != 1:
        tail = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise BuildError(
            f"cibuildwheel left {len(wheels)} wheels ({done.ending}): {tail}",
            where=cell.id,
            next_step=f"log: {folder / 'cibuildwheel.log'}",
        )
    compiled = _compiled(done.stdout)
    console.note(f"{cell.id}: {compiled['host']} host and {compiled['device']} device compiles")
    return BoxedWheel(
        wheel=wheels[0],
        seconds=done.seconds,
        host_compiles=compiled["host"],
        device_compiles=compiled["device"],
    )


def lay_out(plan: Plan, cell: Cell, folder: Path) -> None:
    """Make ``folder`` what the container sees: sources, the line's code, the door and the order."""
    shutil.rmtree(folder, ignore_errors=True)
    copy_project(plan, folder / SOURCES, history=False)
    ours = Path(wheelfab.__file__).parent
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ours, folder / LINE / ours.name, ignore=left_out)
    write_text(folder / DOOR / "pyproject.toml", door(plan))
    write_order(folder, plan, cell)


def require_identifiers(folder: Path, wanted: tuple[str, ...]) -> None:
    """Ask cibuildwheel what it would build; it drops what it does not know without a word.

    Raises ``ToolchainError`` unless that is just what is wanted.
    """
    done = _cibuildwheel(folder, "--print-build-identifiers")
    found = tuple(done.stdout.split()) if done.ok else ()
    if found != wanted:
        missing = ", ".join(name for name in wanted if name not in found) or "nothing"
        raise ToolchainError(
            f"asked for {', '.join(wanted)}, cibuildwheel builds {', '.join(found) or 'nothing'}: "
            f"{missing} is left out {done.stderr.strip()[-300:]}".rstrip(),
            where=str(folder / DOOR / "pyproject.toml"),
            next_step="see project.python in matrix.toml and cibuildwheel's list of Pythons",
        )


def _cibuildwheel(folder: Path, *arguments: str, log: Path | None = None) -> Completed:
    known = {name: os.environ[name] for name in _DOCKER if name in os.environ}
    chosen = ("--platform", "linux", "--config-file", str(folder / "cibuildwheel.toml"))
    return run(
        (sys.executable, "-m", "cibuildwheel", *chosen, *arguments, DOOR),
        env=fetch_environment(known),
        cwd=folder,
        timeout=_TIMEOUT,
        log=log,
    )


def _compiled(output: str) -> Mapping[str, int]:
    for line in output.splitlines():
        if line.startswith(COMPILED):
            found: dict[str, int] = json.loads(line.removeprefix(COMPILED))
            return found
    return {"host": 0, "device": 0}
