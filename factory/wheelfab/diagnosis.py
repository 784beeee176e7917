"""Reads what compilers print: what they were told, and why they failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from wheelfab.errors import BuildError, FactoryError, InfrastructureError
from wheelfab.plan import Action
from wheelfab.run import Completed

_NO_MEMORY = re.compile(r"Killed signal terminated program|virtual memory exhausted|out of memory")
_NO_DISK = re.compile(r"No space left on device|Disk quota exceeded")
_HOST_COMPILE = re.compile(r"^\[\d+/\d+\] .* -c \S+", re.MULTILINE)
_DEVICE_COMPILE = re.compile(r"^nv(?:rtc|cc) \S+ (?:sm|compute)_\w+ ", re.MULTILINE)
_FIRST_ERROR = re.compile(
    r"^.*(?:\berror\b|undefined reference|Error:|CMake Error).*$", re.MULTILINE
)


class NoMemoryError(InfrastructureError):
    """Memory ran out under a step; fewer of them at once may do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiles:
    """How often compilers ran, by the logs: g++ on a source, a device compiler on an arch."""

    host: int
    device: int


def count_compiles(logs: Path) -> Compiles:
    """What the logs of a build, in the folder ``logs``, say that compilers did."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in logs.glob("*.log")]
    return Compiles(
        host=sum(len(_HOST_COMPILE.findall(text)) for text in texts),
        device=sum(len(_DEVICE_COMPILE.findall(text)) for text in texts),
    )


def compile_flags(log: str) -> tuple[str, ...]:
    """The compiler flags in a log of ``cmake --build --verbose``, sorted; folders are left out."""
    calls = (line.split() for line in log.splitlines())
    flags = {word.partition("=/")[0] for words in calls if "-c" in words for word in words}
    shown = (flag for flag in flags if flag.startswith("-") and "/" not in flag)
    return tuple(sorted(set(shown) - {"-c", "-o", "-MD", "-MT", "-MF", "-isystem"}))


def failure(action: Action, done: Completed, log: Path) -> FactoryError:
    """Name a failed step for what it is: no memory, no disk, or an error in the code."""
    output = done.stdout + done.stderr
    where = f"{action.id} ({', '.join(action.cells)})"
    if done.ending == "SIGKILL" or _NO_MEMORY.search(output):
        what, step = "out of memory", "free memory, or build with fewer jobs"
        return NoMemoryError(what, where=where, next_step=f"{step}; log: {log}")
    if _NO_DISK.search(output):
        return InfrastructureError("disk full", where=where, next_step=f"free disk; log: {log}")
    first = _FIRST_ERROR.search(output)
    text = first[0].strip() if first else output.strip()[-500:]
    return BuildError(f"{done.ending}: {text}", where=where, next_step=f"log: {log}")
