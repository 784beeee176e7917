"""This repository's tracked sources, copied: builds in the copy leave the repository alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .conftest import ROOT, Wheelfab


def repository_with(root: Path, rows: str) -> Wheelfab:
    """A copy of this repository in ``root`` with ``rows`` added to its matrix.

    It shares what the repository has compiled so far, so that only what is new is compiled.
    """
    copy_sources(root)
    stored = ROOT / "build" / "store"
    if stored.is_dir():
        (root / "build").mkdir()
        (root / "build" / "store").symlink_to(stored)
    with (root / "matrix.toml").open("a", encoding="utf-8") as file:
        file.write(rows)
    return Wheelfab(root)


def copy_sources(target: Path) -> None:
    """Copy what git tracks, as it lies in the working tree now, to the new folder ``target``."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
