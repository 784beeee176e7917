"""What nvidia-smi says: shown beside the driver's own word, and believed in nothing.

It exits with 0 on machines without a device, and may be a script that says anything.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

_MOST_BYTES = 1 << 16  # that are read
_SHOWN = 1000  # characters
_GRACE = 0.3  # seconds for a killed one to be reaped
_DEVICE = re.compile(r"^GPU \d+: ", re.MULTILINE)


@dataclass(frozen=True)
class Smi:
    """Its words with its end, and the devices that it lists, ``None`` where it did not answer."""

    text: str
    devices: int | None = None


def ask_smi(limit: float) -> Smi | None:
    """``nvidia-smi -L``, killed with all that it started after ``limit`` seconds.

    ``None`` where there is none on PATH.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    try:
        started = subprocess.Popen(
            [path, "-L"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Smi(f"cannot be started: {error}")
    said, ended = _read(started, time.monotonic() + limit)
    text = " ".join(said[:_SHOWN].decode(errors="replace").split())
    if not ended:
        why = "it says too much" if len(said) >= _MOST_BYTES else f"no end within {limit:.0f} s"
        return Smi(f"{text} (killed: {why})".strip())
    devices = len(_DEVICE.findall(said.decode(errors="replace")))
    return Smi(f"{text} (exit {started.returncode})".strip(), devices)


def _read(started: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """What it writes until its end (then ``True``), the deadline or too much; it is gone then."""
    assert started.stdout is not None  # noqa: S101 - for the type checker
    reader = started.stdout.fileno()
    os.set_blocking(reader, False)
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    said = b""
    open_ = True
    while time.monotonic() < deadline and len(said) < _MOST_BYTES:
        ended = started.poll() is not None
        if open_ and poller.poll(0 if ended else 20):
            chunk = _chunk(reader)
            open_ = chunk != b""
            said += chunk or b""
        elif ended:
            break
        elif not open_:
            time.sleep(0.01)
    ended = started.poll() is not None
    _end(started)
    return said, ended


def _chunk(reader: int) -> bytes | None:
    try:
        return os.read(reader, _MOST_BYTES)
    except BlockingIOError:
        return None


def _end(started: subprocess.Popen[bytes]) -> None:
    """Kill it with its session; it is not waited for where the kernel keeps it."""
    assert started.stdout is not None  # noqa: S101 - for the type checker
    started.stdout.close()
    try:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait(_GRACE)
    except (OSError, subprocess.TimeoutExpired):
        pass
