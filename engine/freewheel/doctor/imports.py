"""Imports torch in a child, with and without LD_LIBRARY_PATH, and says what made the difference."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from freewheel.device.answer import ending, text
from freewheel.device.child import converse, is_python
from freewheel.device.record import Asked

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_imports.py")
_STDCXX = "libstdc++.so.6"
_VERSION = re.compile(rb"GLIBCXX_(\d+)\.(\d+)(?:\.(\d+))?\0")
_MOST_BYTES = 64 << 20
_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD")


@dataclass(frozen=True)
class Imported:
    """What an import of torch came to, in a process of its own.

    ``passed`` is ``None`` where it took too long or could not be tried. ``refused`` is why
    freewheel's libraries do not load beside it. ``libraries`` maps each name to its files;
    ``stdcxx`` is the mapped libstdc++, ``glibcxx`` its newest version, ``first_user`` the file that
    brought it. ``elsewhere`` tells which libraries are others without LD_LIBRARY_PATH.
    """

    passed: bool | None
    reason: str = ""
    seconds: float = 0.0
    version: str | None = None
    cuda: str | None = None
    cxx11_abi: bool | None = None
    refused: str = ""
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stdcxx: str | None = None
    glibcxx: str | None = None
    first_user: str | None = None
    elsewhere: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()  # folders to take out of LD_LIBRARY_PATH


def import_torch(deadline: float, *, compare: bool) -> Imported:
    """Import it until ``deadline`` (of ``time.monotonic``) at most.

    A second import without LD_LIBRARY_PATH follows where the variable is set and the first failed,
    or where ``compare`` asks for it.
    """
    environment = dict(os.environ)
    found = _once(environment, deadline)
    paths = [name for name in _PATHS if environment.get(name)]
    if not paths or not (compare or found.passed is False):
        return found
    bare = {name: value for name, value in environment.items() if name not in _PATHS}
    return _compared(found, _once(bare, deadline), " and ".join(paths))


def _once(environment: Mapping[str, str], deadline: float) -> Imported:
    if not is_python(sys.executable):
        return Imported(None, f"{sys.executable or 'the program'} is no Python to try it with")
    flags = ["-I"] if sys.flags.isolated else []
    command = [sys.executable, *flags, SCRIPT, "3", json.dumps(sys.path)]
    limit = max(deadline - time.monotonic(), 0.0)
    try:
        answer = converse(Asked.PYTHON, command, environment, limit, slow=limit)
    except OSError as error:
        return Imported(None, f"{sys.executable} cannot be started: {error.strerror or error}")
    if answer.data is not None:
        return _answered(answer.data)
    if answer.hung:
        return Imported(None, f"{answer.step or 'start'} did not end within {limit:.0f} s")
    return Imported(passed=False, reason=f"{answer.step or 'start'} ended with {ending(answer)}")


def _answered(data: Mapping[str, Any]) -> Imported:
    error = text(data.get("error"))
    given = data.get("libraries")
    libraries = {
        str(name): tuple(map(str, files))
        for name, files in (given.items() if isinstance(given, dict) else ())
        if isinstance(files, list)
    }
    stdcxx = next(iter(libraries.get(_STDCXX, ())), None)
    seconds, abi = data.get("seconds"), data.get("cxx11_abi")
    return Imported(
        passed=error is None,
        reason=error or "",
        seconds=seconds if isinstance(seconds, float) else 0.0,
        version=text(data.get("version")) or None,
        cuda=text(data.get("cuda")),
        cxx11_abi=abi if isinstance(abi, bool) else None,
        refused=text(data.get("refused")) or "",
        libraries=libraries,
        stdcxx=stdcxx,
        glibcxx=newest_glibcxx(stdcxx) if stdcxx else None,
        first_user=text(data.get("first_user")),
    )


def _compared(found: Imported, bare: Imported, paths: str) -> Imported:
    """``found`` with what is another file without the variables."""
    elsewhere, drop = [], []
    for name, files in found.libraries.items():
        others = bare.libraries.get(name, ())
        if others and files[:1] != others[:1]:
            elsewhere.append(f"{name} is {files[0]}; without {paths} it is {others[0]}")
            drop.append(os.path.dirname(files[0]))
    if found.passed is False and bare.passed:
        elsewhere.append(f"without {paths} the import passes")
        drop += [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return replace(found, elsewhere=tuple(elsewhere), drop=tuple(dict.fromkeys(drop)))


def newest_glibcxx(path: str) -> str | None:
    """The newest ``GLIBCXX_3.4.N`` that a libstdc++ defines."""
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError:
        return None
    found = [tuple(int(part or 0) for part in match) for match in _VERSION.findall(content)]
    return f"GLIBCXX_{'.'.join(map(str, max(found)))}" if found else None
