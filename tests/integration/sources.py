"""This repository's tracked sources, copied: builds in the copy leave the repository alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .conftest import ROOT


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
