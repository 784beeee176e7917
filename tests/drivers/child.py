"""Names that the tests of child processes share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]  # what a child needs on its path
Run = Callable[..., Any]  # the fixture `run`
LOAD = "from ctypes import *\ncuda = CDLL('libcuda.so.1')\n"


def calls(log: Path, name: str) -> list[str]:
    """Lines of the fake driver's log for one entry point."""
    if not log.exists():
        return []
    return [line for line in log.read_text().splitlines() if line.split()[2] == name]


def python(code: str, *folders: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter that finds libraries in ``folders``."""
    if folders:
        settings["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(
        command, env=settings, capture_output=True, text=True, check=False, timeout=60
    )


def result(code: str, *folders: Path, **settings: str) -> Any:
    """What ``code`` leaves in ``result``."""
    done = python(f"import json\n{code}\nprint(json.dumps(result))", *folders, **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
