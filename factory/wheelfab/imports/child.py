"""Imports one module in a process of its own and reports what that started.

Run by path under the target's interpreter (Python 3.10 or later), standard library only, wheelfab
never imported::

    python child.py MODULE ROOT FOLDER SECONDS

After ``SECONDS`` the stack of an import that hangs is written; it is for the parent to end it.
``ROOT`` is put before all on ``sys.path`` unless it is ``-``; ``FOLDER`` takes ``report.json``,
``stack`` (the Python stack at the first call into the driver, by faulthandler on SIGUSR1, and at a
crash or a hang) and ``output`` (what the module printed).
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

OUTPUT_LIMIT = 16 << 20  # bytes that the module may write to any one file
TEXT_LIMIT = 300
EVENTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty")


class Watch:
    """Notes the processes that are started while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.processes: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if not self.on or event not in EVENTS or len(self.processes) >= 20:
            return
        what = arguments[1] if event == "subprocess.Popen" else arguments[:1]
        self.processes.append(f"{event} {what!r}"[:TEXT_LIMIT])


def quieten(folder: str) -> None:
    """Send what the module prints to a file, and bound what it can write."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wanted = OUTPUT_LIMIT if hard == resource.RLIM_INFINITY else min(OUTPUT_LIMIT, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wanted, hard))
    output = os.open(Path(folder) / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def native_threads() -> int:
    """The threads of this process that Python does not know."""
    try:
        every = len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 0
    return max(0, every - len(threading.enumerate()))


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the report has it; ``missing`` names a module that is not installed."""
    record: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"[:TEXT_LIMIT]}
    if isinstance(error, ModuleNotFoundError) and error.name:
        record["missing"] = error.name
    return record


def main(module: str, root: str, folder: str, seconds: float) -> None:
    """Import ``module`` and write the report."""
    sys.path[0:1] = [] if root == "-" else [root]
    quieten(folder)
    stack = (Path(folder) / "stack").open("w", encoding="utf-8")
    faulthandler.enable(stack, all_threads=False)
    faulthandler.dump_traceback_later(seconds, file=stack)
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)
    watch = Watch()
    sys.addaudithook(watch)
    before = native_threads()
    record: dict[str, Any] = {}
    watch.on = True
    started = time.perf_counter()
    try:
        importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001 (any way to fail is what is reported)
        record = describe(error)
    record["milliseconds"] = (time.perf_counter() - started) * 1000
    watch.on = False
    main_thread = threading.main_thread()
    record["threads"] = [t.name[:80] for t in threading.enumerate() if t is not main_thread][:20]
    record["native_threads"] = native_threads() - before
    record["processes"] = watch.processes
    record["pools"] = [name for name in ("numpy", "torch") if name in sys.modules]
    part = Path(folder) / "report.part"
    part.write_text(json.dumps(record), encoding="utf-8")
    part.replace(part.with_name("report.json"))
    # how a package ends is for the import loop to judge; a thread that is left must not keep us
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
