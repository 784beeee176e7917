"""Imports torch and loads freewheel, and tells what that maps.

Run as ``python _imports.py DESCRIPTOR SYS_PATH``, never imported: torch may end the process.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any

# What comes with CUDA, with compilers and with torch; by its name up to the major version.
_WATCHED = re.compile(
    r"(lib(?:cu|nv|nccl|stdc\+\+|gcc_s|gomp|omp|iomp5|torch|c10)[\w+-]*\.so(?:\.\d+)?)[\w.]*$",
    re.ASCII,
)
_MOST = 2000  # characters of an error


def mapped() -> dict[str, list[str]]:
    """The watched libraries that are mapped: the files of each name."""
    found: dict[str, list[str]] = {}
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = "/" + line.rstrip("\n").partition("/")[2]
                match = _WATCHED.match(path.rpartition("/")[2])
                if match and path not in found.setdefault(match[1], []):
                    found[match[1]].append(path)
    except OSError:
        pass
    return found


class FirstUser:
    """Which library brought libstdc++: it is there after the first that needs it was opened."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._opened: str | None = None
        self._looking = True

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: each extension module and each library is announced before it opens."""
        if not self._looking or event not in {"import", "ctypes.dlopen"}:
            return
        path = arguments[0] if event == "ctypes.dlopen" else arguments[1]
        if path:
            self.look()
            self._opened = str(path)

    def look(self) -> None:
        """Whether what was opened last has brought it."""
        if self._looking and "libstdc++.so.6" in mapped():
            self._looking = False
            self.name = self._opened or "the interpreter"


def ask(descriptor: int) -> dict[str, Any]:
    """What happened, as an object for the doctor."""
    answer: dict[str, Any] = {"schema": 1}
    first = FirstUser()
    first.look()
    sys.addaudithook(first.see)
    begun = time.monotonic()
    os.write(descriptor, b"step import torch\n")
    try:
        import torch
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
        answer["error"] = f"{type(error).__name__}: {error}"[:_MOST]
    else:
        answer["seconds"] = time.monotonic() - begun
        answer["version"] = str(getattr(torch, "__version__", ""))
        answer["cuda"] = getattr(getattr(torch, "version", None), "cuda", None)
        answer["cxx11_abi"] = getattr(getattr(torch, "_C", None), "_GLIBCXX_USE_CXX11_ABI", None)
        os.write(descriptor, b"step freewheel.load\n")
        try:
            import freewheel

            freewheel.load()
        except BaseException as error:  # noqa: BLE001
            answer["refused"] = f"{error}"[:_MOST] or type(error).__name__
    first.look()
    answer["libraries"], answer["first_user"] = mapped(), first.name
    return answer


def main(arguments: list[str]) -> None:
    """Answer on the descriptor given, and leave without anyone's exit handlers."""
    descriptor = int(arguments[0])
    sys.path[:] = json.loads(arguments[1])
    answer = ask(descriptor)
    text = json.dumps(answer, default=str)
    with os.fdopen(descriptor, "w", encoding="utf-8") as writer:
        writer.write(f"{text}\n")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
