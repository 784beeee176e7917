"""Compiles the .cu files with g++ into one library with the interface of emulation.h.

That header is ``wheelfab.drivers``'s, whose fake driver runs kernels through it; of wheelfab no
more than that file is used, so that any interpreter can import this.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
INTERFACE = HERE.parents[1] / "factory" / "wheelfab" / "drivers" / "include"  # emulation.h
LIBRARY = "libfreewheel_fibers.so"

_COMPILER = "g++"
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
# No fused multiply-add, so that every machine computes the same bits.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-ffp-contract=off", *_WARNINGS)
_KERNEL_FLAGS = ("-fno-strict-aliasing", "-include", "cuda_words.h", "-x", "c++")


class BuildError(Exception):
    """g++ refused a file: its own words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unit:
    """One object file: a source, what it may include, how it is compiled."""

    source: Path
    headers: tuple[Path, ...]
    flags: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of everything that decides the object's bytes."""
        state = hashlib.sha256(repr((_compiler_version(), self.flags)).encode())
        for path in (self.source, *self.headers):
            content = path.read_bytes()
            state.update(f"{path.name}:{len(content)}:".encode() + content)
        return state.hexdigest()[:32]


def build(
    folder: Path,
    *,
    csrc: Path = CSRC,
    sources: Sequence[Path] | None = None,
    flags: Sequence[str] = (),
) -> Path:
    """The emulation library, under ``folder``; nothing is compiled when it is there already.

    ``sources``: the ``.cu`` files in it, by default all of ``csrc/kernels``. ``flags`` are added to
    each compile. Safe when several processes build at once. Raises ``BuildError``.
    """
    kernels = sorted((csrc / "kernels").glob("*.cu")) if sources is None else list(sources)
    units = _units(kernels, csrc, tuple(flags))
    key = hashlib.sha256("".join(unit.digest for unit in units).encode()).hexdigest()[:32]
    library = folder / key / LIBRARY
    if library.exists():
        return library
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    library.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        compiled = list(pool.map(lambda unit: _compile(unit, objects, csrc), units))
    _make(library, ["-shared", *flags, *map(str, compiled)])
    return library


def _units(kernels: Sequence[Path], csrc: Path, flags: tuple[str, ...]) -> list[_Unit]:
    own = tuple(
        sorted([*HERE.glob("*.h"), *(HERE / "include").glob("*.h"), INTERFACE / "emulation.h"])
    )
    abi = (csrc / "abi/ops.h", csrc / "kernels/shapes.h")
    shared = (*own, *abi, csrc / "kernels/common.cuh")
    exports = (*own, *abi, csrc / "kernels/launch.h")
    common = (*_FLAGS, *flags)
    return [
        *(
            _Unit(source=HERE / n, headers=own, flags=common)
            for n in ("emulation.cpp", "stacks.cpp")
        ),
        _Unit(source=HERE / "exports.cpp", headers=exports, flags=common),
        *(_Unit(source=k, headers=shared, flags=(*common, *_KERNEL_FLAGS)) for k in kernels),
    ]


def _compile(unit: _Unit, objects: Path, csrc: Path) -> Path:
    target = objects / f"{unit.digest}.o"
    if not target.exists():
        include = [f"-I{folder}" for folder in (HERE, HERE / "include", INTERFACE, csrc)]
        _make(target, [*unit.flags, *include, "-c", str(unit.source)])
    return target


def _make(target: Path, arguments: Sequence[str]) -> None:
    """Runs the compiler into a file aside, then puts it in place."""
    with tempfile.TemporaryDirectory(dir=target.parent) as aside:
        made = Path(aside) / target.name
        command = [_COMPILER, *arguments, "-o", str(made)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BuildError(f"{' '.join(command)}\n{run.stderr}")
        made.replace(target)


@cache
def _compiler_version() -> str:
    if shutil.which(_COMPILER) is None:
        raise BuildError(f"{_COMPILER} is not on PATH")
    command = [_COMPILER, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the library goes")
    print(build(parser.parse_args().folder))
