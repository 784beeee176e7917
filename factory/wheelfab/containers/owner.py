"""Whose a container is: a label that tells whether the process that started it still lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

OWNER = "wheelfab.owner"
_STARTED = 19  # of the fields after the name in /proc/PID/stat: the clock tick it was started at


def owner_labels(proc: Path = Path("/proc")) -> dict[str, str]:
    """The label of what this process starts."""
    pid = os.getpid()
    return {OWNER: f"{_machine(proc)}/{pid}/{_started(proc, pid)}"}


def is_abandoned(labels: Mapping[str, str], proc: Path = Path("/proc")) -> bool:
    """Whether the process that set ``labels`` is gone for sure.

    A process of another machine, boot or PID namespace cannot be judged and counts as alive.
    """
    machine, _, process = labels.get(OWNER, "").partition("/")
    pid, _, started = process.partition("/")
    if machine != _machine(proc) or not pid.isdecimal():
        return False
    return _started(proc, int(pid)) != started


def _machine(proc: Path) -> str:
    """This boot of this machine, and the namespace that our process numbers belong to."""
    boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}-{(proc / 'self/ns/pid').stat().st_ino}"


def _started(proc: Path, pid: int) -> str:
    """When process ``pid`` was started; empty when there is none or it is a zombie."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[_STARTED]
