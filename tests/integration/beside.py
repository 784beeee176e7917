"""A wheel beside this interpreter's torch: an environment of its own, and the installed tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

from .conftest import ROOT

_TIMEOUT = 900


def install_beside(wheel: Path, home: Path) -> Path:
    """Put ``wheel`` before all that this interpreter has installed; the Python that sees both."""
    command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(home)]
    subprocess.run(command, check=True)
    bases = {"base": str(home), "platbase": str(home)}
    site = Path(sysconfig.get_path("purelib", "posix_prefix", vars=bases))
    with ZipFile(wheel) as archive:
        for member in archive.infolist():
            Path(archive.extract(member, site)).chmod(member.external_attr >> 16 & 0o777)
    ours = sysconfig.get_path("purelib")
    (site / "beside.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return home / "bin" / "python"


def run_beside(
    python: Path, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run that Python in this repository, with no module path but its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )
    assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done


def passed_beside(python: Path, *paths: str) -> int:
    """How many of the tests under ``paths`` pass there: all of those that run must."""
    options = ("-q", "-o", "pythonpath=.", "-p", "no:cacheprovider")
    found = re.search(r"(\d+) passed", run_beside(python, "-m", "pytest", *options, *paths).stdout)
    assert found is not None
    return int(found[1])
