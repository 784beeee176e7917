"""A wheel beside this interpreter's torch: an environment of its own, and the installed tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from .conftest import ROOT

_TIMEOUT = 900


def install_beside(wheel: Path, home: Path) -> Path:
    """Put ``wheel`` before all that this interpreter has installed; the Python that sees both."""
    command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(home)]
    subprocess.run(command, check=True)
    site = packages_in(home)
    with ZipFile(wheel) as archive:
        for member in archive.infolist():
            Path(archive.extract(member, site)).chmod(member.external_attr >> 16 & 0o777)
    show_ours(site)
    return home / "bin" / "python"


def packages_in(home: Path) -> Path:
    """The packages folder of the environment ``home``, which is of our own Python."""
    bases = {"base": str(home), "platbase": str(home)}
    return Path(sysconfig.get_path("purelib", "posix_prefix", vars=bases))


def show_ours(site: Path) -> None:
    """Let the environment with the packages folder ``site`` see, after its own, what we have."""
    ours = sysconfig.get_path("purelib")
    (site / "beside.pth").write_text(f"import site; site.addsitedir({ours!r})\n")


def run_beside(
    python: Path, *arguments: str, check: bool = True, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run that Python in this repository, with no module path but its own, and ``settings``."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env={**environment, **(settings or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )
    assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done


def passed_beside(python: Path, *paths: str, settings: Mapping[str, str] | None = None) -> int:
    """How many of the tests under ``paths`` pass there: all of those that run must."""
    options = ("-q", "-o", "pythonpath=.", "-p", "no:cacheprovider")
    done = run_beside(python, "-m", "pytest", *options, *paths, settings=settings)
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    return int(found[1])
