"""What the integration tests share: a copy of the tiny extension, wheelfab as people start it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wheelfab.containers import Engine, NoEngine, find_engine
from wheelfab.errors import InfrastructureError

ROOT = Path(__file__).resolve().parents[2]
TINY = Path(__file__).parent / "tiny"
_TIMEOUT = 600


@dataclass(frozen=True)
class Wheelfab:
    """``python -m wheelfab`` in a project's folder."""

    root: Path

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, which SIGINT ends.

        A test run in the background of a shell ignores it, and so would what it starts.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "wheelfab", *argv],
            cwd=self.root,
            env=self._environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*argv, **env)
        out, err = process.communicate(timeout=_TIMEOUT)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *argv: str, **env: str) -> Any:
        """The JSON result of a command that must succeed."""
        done = self.run(*argv, "--json", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        paths = [str(ROOT / "factory"), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **env}


@pytest.fixture
def tiny(tmp_path: Path) -> Wheelfab:
    """A fresh copy of the tiny extension, never built; toolchains come from the common store."""
    root = tmp_path / "tiny"
    shutil.copytree(TINY, root)
    return Wheelfab(root)


@pytest.fixture(scope="session")
def wheelfab() -> Wheelfab:
    """This repository itself."""
    return Wheelfab(ROOT)


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The Docker engine, with the bases; without one a test skips, but in CI it fails."""
    found = find_engine(ROOT)
    reason = ""
    if isinstance(found, NoEngine):
        reason = found.reason
    else:
        try:
            found.image("cpu-host")
        except InfrastructureError as error:
            reason = str(error)
    if isinstance(found, NoEngine) or reason:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
