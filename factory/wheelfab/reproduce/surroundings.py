"""What is different around a second build: user, host, cores, umask, zone, language, clock."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wheelfab import machine
from wheelfab.errors import BuildError
from wheelfab.run import check, run, tool_environment

# Each takes its first argument and runs the rest.
_NAMED = 'hostname "$1" && shift && exec "$@"'
_MASKED = 'umask "$1" && shift && exec "$@"'
# Lays a folder over /etc, where every program looks: tools get no environment of ours.
_TURNED = 'mount -t overlay overlay -o "lowerdir=$1:/etc" /etc && shift && exec "$@"'
_CLOCK = Path(__file__).with_name("clock.c")
_YEARS = 5  # those of clock.c
_IS_LATER = 'test "$(date +%s)" -gt "$1"'
_A_YEAR = 365 * 24 * 3600  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Around one build. ``user``, ``hostname`` and ``core`` None are this machine's own.

    ``umask`` is octal; ``dated`` is the time of the sources' files, in seconds of the epoch, or
    None for the time at which they were copied; ``clock`` is what ``make_clock`` left.
    """

    name: str
    folder: str
    umask: str
    zone: str
    language: str
    hash_seed: str
    dated: int | None = None
    user: int | None = None
    hostname: str | None = None
    core: int | None = None
    clock: Path | None = None

    def environment(self, home: str) -> dict[str, str]:
        """What the build is told of user, zone and language."""
        name = f"user{self.user}" if self.user is not None else "builder"
        return {
            "HOME": home,
            "USER": name,
            "LOGNAME": name,
            "TZ": self.zone,
            "LC_ALL": self.language,
            "PYTHONHASHSEED": self.hash_seed,
        }

    def command(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """``argv`` in these surroundings; user, host name and clock by namespaces."""
        inner = ("sh", "-c", _MASKED, "sh", self.umask, *argv)
        if self.core is not None:
            inner = ("taskset", "--cpu-list", str(self.core), *inner)
        if self.user is not None:
            ids = (f"--map-user={self.user}", f"--map-group={self.user}")
            inner = ("unshare", "--user", *ids, *inner)
        if self.clock is not None:
            turned = ("sh", "-c", _TURNED, "sh", str(self.clock))
            inner = ("unshare", "--user", "--map-root-user", "--mount", *turned, *inner)
        if self.hostname is not None:
            named = ("sh", "-c", _NAMED, "sh", self.hostname)
            inner = ("unshare", "--user", "--map-root-user", "--uts", *named, *inner)
        return inner


@dataclass(frozen=True, kw_only=True, slots=True)
class Varied:
    """The surroundings of two builds, and in words what is different and what could not be."""

    first: Surroundings
    second: Surroundings
    different: Mapping[str, str]
    same: Mapping[str, str]


FIRST = Surroundings(
    name="first",
    folder="a",
    umask="022",
    zone="UTC",
    language="C.UTF-8",
    hash_seed="0",
)
_SECOND = Surroundings(
    name="second",
    folder="another folder/with/more levels",
    umask="077",
    zone="Asia/Kathmandu",
    language="C",
    hash_seed="12345",
    dated=1_000_000_000,
)


def make_clock(folder: Path, cc: Path) -> Path:
    """Files to lay over /etc that turn the clock of every program; raises ``BuildError``."""
    folder.mkdir(parents=True)
    library = "wheelfab-clock.so"
    argv = (str(cc), "-shared", "-fPIC", "-O1", "-o", str(folder / library), str(_CLOCK))
    check(run(argv, env=tool_environment()), BuildError, doing="making a clock")
    (folder / "ld.so.preload").write_text(f"/etc/{library}\n", encoding="utf-8")
    return folder


def vary(clock: Path) -> Varied:
    """Two surroundings as different as this machine lets them be."""
    wanted: dict[str, tuple[str, int | str | Path]] = {
        "clock": ("clock", clock),
        "user": ("user", 4321),
        "hostname": ("host name", "elsewhere"),
        "core": ("cores", max(os.sched_getaffinity(0))),
    }
    second, same = _SECOND, dict[str, str]()
    for field, (word, value) in wanted.items():
        changed = replace(_SECOND, **{field: value})  # type: ignore[arg-type]
        reason = "this machine has one" if field == "core" and machine.cores() == 1 else ""
        reason = reason or _refusal(changed.command(_proof(field)))
        if reason:
            same[word] = reason
        else:
            second = replace(second, **{field: value})  # type: ignore[arg-type]
    return Varied(first=FIRST, second=second, different=_different(second), same=same)


def _proof(field: str) -> tuple[str, ...]:
    """A command that ends well where ``field`` was changed indeed."""
    if field == "clock":
        return ("sh", "-c", _IS_LATER, "sh", str(int(time.time()) + _A_YEAR))
    return ("true",)


def _refusal(argv: tuple[str, ...]) -> str:
    """Why this machine does not run ``argv``; empty where it does."""
    if shutil.which(argv[0]) is None:
        return f"there is no {argv[0]}"
    done = run(argv, env=tool_environment(), timeout=20)
    return "" if done.ok else f"{argv[0]}: {done.stderr.strip().splitlines()[-1:] or done.ending}"


def _different(second: Surroundings) -> Mapping[str, str]:
    told = {
        "folder": f"{FIRST.folder} / {second.folder}",
        "umask": f"{FIRST.umask} / {second.umask}",
        "time zone": f"{FIRST.zone} / {second.zone}",
        "language": f"{FIRST.language} / {second.language}",
        "hash seed": f"{FIRST.hash_seed} / {second.hash_seed}",
        "files' times": "now / 2001",
    }
    if second.clock is not None:
        told["clock"] = f"this machine's / {_YEARS} years ahead, by a mount namespace"
    if second.user is not None:
        told["user"] = f"{os.getuid()} / {second.user}, by a user namespace"
    if second.hostname is not None:
        told["host name"] = f"this machine's / {second.hostname}"
    if second.core is not None:
        told["cores"] = f"{machine.cores()} / 1"
    return told
