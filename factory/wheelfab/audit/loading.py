"""What loading a wheel's libraries calls of the driver, asked of a driver that only counts.

Each library is loaded in a process of its own, in a name space without a network, in which all
files but those of one temporary folder are read-only, within limits of time, memory and written
bytes; where the kernel gives no such name space, nothing is loaded. That is a fence around
accidents, not a jail: it runs under ``--deep`` alone, for wheels that would be installed anyway.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wheelfab import run
from wheelfab.archive import open_archive
from wheelfab.audit import child, fence
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.library import LibraryFacts
from wheelfab.errors import UsageError
from wheelfab.imports.dynamic import build_fake

_SECONDS = 90.0
_CHUNK = 1 << 20
_TORCH = ("libtorch", "libc10")
_ET_DYN = 3
_FENCE = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--"),
    *(sys.executable, "-I", fence.__file__),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """How loading one library went. ``calls``: functions of the driver, each with how often.

    ``refused``: why the loader would not, or was never asked; ``died``: how the process ended while
    it loaded the library.
    """

    name: str
    calls: dict[str, int]
    refused: str = ""
    died: str = ""


def require_python(python: Path) -> None:
    """Raise ``UsageError`` when no Python answers under that name."""
    done = run.run((str(python), "-I", "-c", ""), env=run.tool_environment(), timeout=30)
    if not done.ok:
        raise UsageError(
            f"no Python answers ({done.ending})", where=str(python), next_step="choose another"
        )


def load_libraries(facts: WheelFacts) -> tuple[tuple[Loaded, ...], str]:
    """Load each library of the wheel; gives why that was not possible, or an empty text."""
    if facts.python is None:
        return (), "nothing is loaded without --deep"
    libraries = [one for one in facts.libraries if one.host and one.host.type == _ET_DYN]
    libraries = [one for one in libraries if ".so" in one.file]
    if not libraries:
        return (), ""
    with tempfile.TemporaryDirectory(prefix="wheelfab-load-") as text:
        folder = Path(text)
        reason = build_fake(folder / "drivers")
        if reason:
            return (), reason
        fenced = (*_FENCE, str(folder))
        if reason := _without_fence(fenced):
            return (), f"nothing is loaded without a fence: {reason}"
        _unpack(facts, folder / "wheel")
        return tuple(_load(one, facts.python, folder, fenced) for one in libraries), ""


def _unpack(facts: WheelFacts, folder: Path) -> None:
    """The ELF files of a sound wheel, where they lie in it; the archive's rules bound them."""
    with open_archive(facts.path) as archive:
        for library in facts.libraries:
            place = folder / library.name
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(library.name) as packed, place.open("wb") as file:
                shutil.copyfileobj(packed, file, _CHUNK)


def _without_fence(fenced: tuple[str, ...]) -> str:
    """Why a command cannot be fenced here; empty where it can."""
    if shutil.which(fenced[0]) is None:
        return f"there is no {fenced[0]}"
    done = run.run((*fenced, "true"), env=run.tool_environment(), timeout=20)
    return "" if done.ok else (done.stderr.strip().splitlines() or [done.ending])[-1]


def _load(library: LibraryFacts, python: Path, folder: Path, fenced: tuple[str, ...]) -> Loaded:
    log = folder / "calls"
    log.unlink(missing_ok=True)
    needs = library.host.needed if library.host else ()
    with_torch = ("torch",) * any(name.startswith(_TORCH) for name in needs)
    script = (str(python), "-I", child.__file__, str(folder / "wheel" / library.name), str(log))
    extra = {"LD_LIBRARY_PATH": str(folder / "drivers"), "WHEELFAB_COUNT_LOG": str(log)}
    env = run.tool_environment(extra | {"HOME": str(folder), "TMPDIR": str(folder)})
    done = run.run((*fenced, *script, *with_torch), env=env, cwd=folder, timeout=_SECONDS)
    lines = done.stdout.splitlines()
    before = next((int(line[7:]) for line in lines if line.startswith("before ")), None)
    if before is None:  # the library was not opened yet
        what = "importing torch" if with_torch else "starting Python"
        return Loaded(name=library.name, calls={}, refused=f"{what} ends so: {done.ending}")
    after = next((line[6:] for line in lines if line.startswith("after ")), None)
    calls = dict(Counter(list(_lines(log))[before:]))
    if after is None:
        return Loaded(name=library.name, calls=calls, died=done.ending)
    return Loaded(name=library.name, calls=calls, refused=after)


def _lines(log: Path) -> Iterator[str]:
    if log.exists():
        with log.open("rb") as file:
            yield from file.read(_CHUNK).decode("utf-8", "replace").splitlines()
