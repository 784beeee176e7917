"""Pythons on this machine that a torch release supports."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from wheelfab.errors import UsageError
from wheelfab.run import run, tool_environment
from wheelfab.versions import series

_QUESTION = """
import json, os, platform, sys, sysconfig
from importlib.util import find_spec
print(json.dumps({
    "version": platform.python_version(),
    "usable": platform.python_implementation() == "CPython"
        and not sysconfig.get_config_var("Py_GIL_DISABLED") and find_spec("venv") is not None,
    "markers": {
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    },
}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A CPython that can make environments. ``markers`` is what PEP 508 markers are judged by."""

    path: Path
    version: Version
    markers: tuple[tuple[str, str], ...]


def find_interpreter(allowed: Iterable[Version]) -> Interpreter | None:
    """A Python of one of the ``allowed`` series: the running one, else the newest on the PATH.

    What is named like a Python and does not work, as a shim of a version that is not installed, is
    passed over.
    """
    wanted = sorted(set(allowed), reverse=True)
    running = Path(sys.executable)
    if series(Version(".".join(map(str, sys.version_info[:3])))) in wanted:
        found = ask(running)
        if found is not None:
            return found
    for version in wanted:
        for path in _named(f"python{version}"):
            found = ask(path)
            if found is not None and series(found.version) == version:
                return found
    return None


def ask(path: Path) -> Interpreter | None:
    """Ask the Python in ``path`` what it is; ``None`` when it does not work or is no use here.

    A free-threaded build is no use: wheels for the stable ABI do not load in it.
    """
    try:
        done = run((str(path), "-I", "-c", _QUESTION), env=tool_environment(), timeout=30)
        if not done.ok:
            return None
        answer = json.loads(done.stdout)
        if not answer["usable"]:
            return None
        version, markers = Version(answer["version"]), answer["markers"]
        return Interpreter(path=path, version=version, markers=tuple(sorted(markers.items())))
    except (UsageError, OSError, ValueError, KeyError, TypeError, InvalidVersion):
        return None


def _named(name: str) -> Iterable[Path]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder or ".") / name
        if os.access(path, os.X_OK) and path.is_file():
            yield path.absolute()
