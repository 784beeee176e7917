"""How much of this machine a build may use: cores, memory and disk, as its cgroup allows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wheelfab.errors import InfrastructureError

GIB = 1 << 30
_MEMORY_PER_JOB = 2 * GIB  # a torch binding's compile peaks at 1.1 GiB; NVRTC at 0.2
_MARGIN = 0.8  # of the memory; the rest stays with the machine
_UNLIMITED = 1 << 60


def jobs_for(cores: int, memory: int, *, per_job: int = _MEMORY_PER_JOB) -> int:
    """How many compile jobs ``cores`` and ``memory`` (bytes) carry: at least 1."""
    return max(1, min(cores, int(memory * _MARGIN) // per_job))


def jobs() -> int:
    """How many compile jobs this machine carries now."""
    return jobs_for(cores(), memory())


def cores() -> int:
    """The cores that this process may run on, within its cgroup's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, _quota()))


def memory(root: Path = Path("/")) -> int:
    """Bytes of memory that a build may take: the least of what is free and the cgroups' limits.

    A cgroup counts the pages of files that it read as used; those that nobody used lately are
    given back before anything is refused.
    """
    limits = [_available(root)]
    for folder in _cgroups(root):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        if limit and limit < _UNLIMITED:
            limits.append(min(limit, max(0, limit - used + _reclaimable(folder))))
    return min(limits)


def require_disk(folder: Path, needed: int) -> None:
    """Raise ``InfrastructureError`` unless ``folder``'s file system has ``needed`` bytes free."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise InfrastructureError(
            f"{free / GIB:.1f} GiB free, {needed / GIB:.1f} GiB needed",
            where=str(folder),
            next_step="free some space or point WHEELFAB_STORE to a larger disk",
        )


def _quota() -> int:
    for folder in _cgroups(Path("/")):
        words = _text(folder / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            return max(1, int(words[0]) // int(words[1]))
    return _UNLIMITED


def _available(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 4 * GIB


def _cgroups(root: Path) -> list[Path]:
    """Our cgroup's folder and its parents', version 2 and the memory controller of version 1."""
    folders: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            top = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
        else:
            continue
        own = top / path.lstrip("/")
        folders.extend([own, *(parent for parent in own.parents if parent.is_relative_to(top))])
    return folders


def _reclaimable(folder: Path) -> int:
    """Bytes of files in a cgroup's memory that nobody used lately; its children's included."""
    lines = (line.split() for line in _text(folder / "memory.stat").splitlines())
    found = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
    # version 1 counts the children under a name of its own, version 2 always
    return found.get("total_inactive_file", found.get("inactive_file", 0))


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
