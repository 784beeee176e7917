"""A copy of the project as it lies here now: its commit, its tracked files, what the plan reads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from wheelfab.errors import BuildError, UsageError
from wheelfab.locked import LOCK
from wheelfab.plan import Plan
from wheelfab.run import check, run, tool_environment

_LEFT_OUT = ("build", "dist", ".git", ".nox", ".venv", "__pycache__")
_GIT_TIMEOUT = 300.0


def copy_project(
    plan: Plan, target: Path, *, history: bool = True, dated: int | None = None
) -> None:
    """Make ``target``, a project whose build has the same plan; nothing built comes along.

    ``history``: whether it is a git repository, as the project is. ``dated``: the time of its
    files, in seconds of the epoch.

    Raises ``UsageError`` where the repository begins further up, ``BuildError`` when git fails.
    """
    root = plan.source.root.resolve()
    if target.exists():
        raise UsageError("is there already", where=str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    if plan.source.commit is None:
        shutil.copytree(root, target, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    else:
        if history:
            _clone(root, target)
        _overlay(root, target, [*_tracked(root), *_read(plan), LOCK])
    if dated is not None:
        for path in _files(target):
            os.utime(path, (dated, dated))


def _clone(root: Path, target: Path) -> None:
    """The commit without its working tree's changes; they are laid over it."""
    if not (root / ".git").exists():
        raise UsageError(
            "is not the top folder of its git repository",
            where=str(root),
            next_step="keep matrix.toml at the top of the repository",
        )
    argv = ("git", "clone", "--quiet", "--no-hardlinks", str(root), str(target))
    done = run(argv, env=tool_environment(), timeout=_GIT_TIMEOUT)
    check(done, BuildError, doing="copying the project")


def _tracked(root: Path) -> tuple[str, ...]:
    argv = ("git", "-C", str(root), "ls-files", "-z")
    done = run(argv, env=tool_environment(), timeout=_GIT_TIMEOUT)
    check(done, BuildError, doing="listing the project's files")
    return tuple(filter(None, done.stdout.split("\0")))


def _read(plan: Plan) -> Iterator[str]:
    """What the plan's globs found, tracked or not."""
    for action in plan.actions:
        yield from action.inputs


def _overlay(root: Path, target: Path, names: Iterable[str]) -> None:
    for name in dict.fromkeys(names):
        source, place = root / name, target / name
        if not source.is_file():
            place.unlink(missing_ok=True)
        elif not place.exists() or place.read_bytes() != source.read_bytes():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)


def _files(target: Path) -> Iterator[Path]:
    """All files of the copy but git's own."""
    for folder, folders, names in os.walk(target):
        folders[:] = [name for name in folders if name != ".git"]
        yield from (Path(folder) / name for name in names if not (Path(folder) / name).is_symlink())
