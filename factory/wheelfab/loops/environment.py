"""A clean virtual environment for a wheel: torch by hard links, then the wheel by pip."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelfab.errors import HarnessError, WheelError
from wheelfab.flock import hold, is_held
from wheelfab.loops.interpreter import Interpreter
from wheelfab.loops.site import TorchSite, link_tree, pip_for
from wheelfab.run import check, run, tool_environment
from wheelfab.store import Store
from wheelfab.wheel import Wheel

_TIMEOUT = 600.0
_FOLDER = ".loops"  # in the store's root: on its file system, so that hard links work
_LISTING = """
import importlib.metadata, json, sysconfig
found = importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
print(json.dumps([(d.metadata["Name"], d.version) for d in found]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """An environment that is ready: its interpreter and what is installed in it."""

    root: Path
    python: Path
    installed: tuple[tuple[str, Version], ...]

    def version(self, name: str) -> Version | None:
        """The version of distribution ``name`` (canonical), ``None`` when it is not there."""
        return dict(self.installed).get(name)


@contextmanager
def clean_environment(
    store: Store,
    wheel: Wheel,
    torch: TorchSite | None,
    interpreter: Interpreter,
    *,
    whole: bool = True,
) -> Iterator[Environment]:
    """An environment with ``torch`` and ``wheel``, made anew and removed at the end.

    Unless ``whole``, the wheel's requirements may be unmet. Raises ``WheelError`` when pip refuses
    the wheel, when its requirements are not met, or when installing it changed torch;
    ``HarnessError`` when the environment itself cannot be made.
    """
    folder = store.root / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix="env-", dir=folder, ignore_cleanup_errors=True) as name:
        root = Path(name)
        with hold(_lock(root), what=f"environment {root.name}", timeout=10.0):
            yield make_environment(root, wheel, torch, interpreter, whole=whole)


def make_environment(
    root: Path,
    wheel: Wheel,
    torch: TorchSite | None,
    interpreter: Interpreter,
    *,
    whole: bool = True,
) -> Environment:
    """Make the environment of ``clean_environment`` in the empty folder ``root``."""
    done = run(
        (str(interpreter.path), "-I", "-m", "venv", "--without-pip", str(root)),
        env=tool_environment(),
        timeout=_TIMEOUT,
    )
    check(done, HarnessError, doing=f"making an environment with {interpreter.path}")
    python = root / "bin" / "python"
    if torch is not None:
        packages = _site_packages(python)
        for part in (torch.tree.root, torch.extra):
            link_tree(part, packages)
    before = Environment(root=root, python=python, installed=installed_in(python))
    _install(python, wheel)
    after = Environment(root=root, python=python, installed=installed_in(python))
    if torch is not None and before.version("torch") != torch.version:
        raise HarnessError(
            f"torch {before.version('torch')} is installed, not {torch.version}", where=str(root)
        )
    if before.version("torch") != after.version("torch"):
        raise WheelError(
            f"installing it changed torch from {before.version('torch')} "
            f"to {after.version('torch')}",
            where=wheel.file,
        )
    problems = unmet_requirements(wheel, after, interpreter) if whole else ()
    if problems:
        raise WheelError("its requirements are not met: " + ", ".join(problems), where=wheel.file)
    return after


def unmet_requirements(
    wheel: Wheel, environment: Environment, interpreter: Interpreter
) -> tuple[str, ...]:
    """What ``wheel`` requires and ``environment`` has not, as ``pip check`` would find it."""
    problems = []
    for need in wheel.requires_dist:
        markers = {**dict(interpreter.markers), "extra": ""}
        if need.marker is not None and not need.marker.evaluate(markers):
            continue
        found = environment.version(canonicalize_name(need.name))
        if found is None:
            problems.append(f"{need} (not installed)")
        elif not need.specifier.contains(found, prereleases=True):
            problems.append(f"{need} (installed: {found})")
    return tuple(problems)


def installed_in(python: Path) -> tuple[tuple[str, Version], ...]:
    """Names (canonical) and versions of the distributions in an environment."""
    done = run((str(python), "-I", "-c", _LISTING), env=tool_environment(), timeout=_TIMEOUT)
    check(done, HarnessError, doing="listing what is installed")
    try:
        found = json.loads(done.stdout)
        return tuple(sorted((canonicalize_name(name), Version(version)) for name, version in found))
    except (ValueError, TypeError, InvalidVersion) as error:
        raise HarnessError(f"cannot read what is installed: {error}", where=str(python)) from error


def _install(python: Path, wheel: Wheel) -> None:
    quiet = ("--no-input", "--disable-pip-version-check", "--no-warn-script-location")
    done = run(
        (*pip_for(python), "install", "--no-deps", "--no-index", *quiet, str(wheel.path)),
        env=tool_environment({"PIP_CONFIG_FILE": os.devnull}),
        timeout=_TIMEOUT,
    )
    check(done, WheelError, doing=f"pip install {wheel.file}")


def _site_packages(python: Path) -> Path:
    question = "import sysconfig; print(sysconfig.get_path('platlib'))"
    done = run((str(python), "-I", "-c", question), env=tool_environment(), timeout=_TIMEOUT)
    check(done, HarnessError, doing="asking for the environment's packages")
    return Path(done.stdout.strip())


def _lock(root: Path) -> Path:
    return root.parent / f".{root.name}.lock"


def _remove_abandoned(folder: Path) -> None:
    """Remove the environments whose makers were killed: nobody holds their lock any more."""
    for lock in folder.glob(".env-*.lock"):
        if not is_held(lock):
            root = folder / lock.name[1 : -len(".lock")]
            shutil.rmtree(root, ignore_errors=True)
            lock.unlink(missing_ok=True)
