"""Makes ``matrix.lock``: what is locked stays, what is missing is looked up; or all of it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from wheelfab import console
from wheelfab.containers import Engine, NoEngine
from wheelfab.errors import ToolchainError
from wheelfab.inputs import locked_compiler
from wheelfab.locked import (
    SCHEMA,
    Locked,
    LockedCompiler,
    LockedImage,
    LockedToolchain,
    LockedTorch,
    LockedWheel,
)
from wheelfab.records import file_digest
from wheelfab.run import check
from wheelfab.store import Store
from wheelfab.toolchain import pip
from wheelfab.toolchain.host import HostCompiler
from wheelfab.toolchain.pins import pinned
from wheelfab.toolchain.tools import PYTHON, ROOTS
from wheelfab.toolchain.torch import torch_tree
from wheelfab.variant import Cell

# What wheelfab itself needs where it packs in a container, and what tries the wheel there.
CONTAINER_ROOTS = (
    *("cyclonedx-python-lib", "isal", "lz4", "packaging", "platformdirs", "pydantic", "rich"),
    *("tomlkit", "virtualenv", "zstandard"),
)
BASES = ("debian-11", "debian-12", "debian-13")


def make_lock(
    cells: Sequence[Cell],
    store: Store,
    compiler: HostCompiler,
    engine: Engine | NoEngine,
    old: Locked | None,
) -> Locked:
    """The lock of ``cells``; what ``old`` has is kept, and other machines' compilers always are.

    Torch and the build tools are fetched to be hashed; images are locked where an engine has them.

    Raises ``ToolchainError`` when something cannot be had.
    """
    kept = old or Locked(schema=SCHEMA)
    return Locked(
        schema=SCHEMA,
        toolchain=tuple(_toolchains(cells, kept)),
        torch=tuple(_torches(cells, store, kept)),
        requirement=_wheels(ROOTS, kept.requirement),
        container=_wheels((*ROOTS, *CONTAINER_ROOTS), kept.container),
        compiler=_compilers(compiler, kept),
        image=tuple(_images(engine, kept)),
    )


def without_all_but_compilers(old: Locked | None) -> Locked | None:
    """What ``--upgrade`` keeps of a lock: the compilers of other machines."""
    return Locked(schema=SCHEMA, compiler=old.compiler) if old else None


def _toolchains(cells: Sequence[Cell], kept: Locked) -> Iterable[LockedToolchain]:
    used = {(cell.variant.toolchain, cell.variant.cuda) for cell in cells if cell.variant.cuda}
    for route, cuda in sorted(used, key=str):
        known = kept.toolchain_of(str(route), str(cuda))
        wheels = pinned(str(route), Version(str(cuda))).wheels
        yield known or LockedToolchain(
            route=str(route),
            cuda=str(cuda),
            wheel=tuple(
                LockedWheel(
                    package=wheel.package,
                    version=wheel.version,
                    file=wheel.file,
                    sha256=wheel.sha256,
                    size=wheel.size,
                )
                for wheel in wheels
            ),
        )


def _torches(cells: Sequence[Cell], store: Store, kept: Locked) -> Iterable[LockedTorch]:
    known = {(item.release, item.index): item for item in kept.torch}
    wanted = {
        (cell.pin.headers, cell.variant.torch_index): cell.variant.torch_fallback for cell in cells
    }
    for (release, index), fallback in sorted(wanted.items(), key=lambda item: item[0]):
        found = known.get((str(release), index))
        if found is None or (found.fell_back and fallback is None):
            tree = torch_tree(store, release=release, index=index, fallback=fallback)
            found = LockedTorch(
                release=str(release),
                index=index,
                python=tree.python,
                version=str(parse_wheel_filename(tree.file)[1]),
                file=tree.file,
                sha256=tree.sha256,
                source=tree.source,
            )
        yield found


def _wheels(roots: Sequence[str], kept: Sequence[LockedWheel]) -> tuple[LockedWheel, ...]:
    """The wheels of ``roots`` and of all that they need; those of the lock where it has them."""
    if set(roots) <= {wheel.package for wheel in kept}:
        return tuple(kept)
    console.step(f"looking up {', '.join(roots)}")
    with tempfile.TemporaryDirectory(prefix="wheelfab-") as name:
        folder = Path(name)
        done = pip.download(
            (*pip.target(PYTHON), *roots),
            into=folder,
            env=pip.user_environment(folder),
            dependencies=True,
        )
        check(
            done,
            ToolchainError,
            doing="looking up the build tools",
            next_step="check that pip reaches its index",
        )
        return tuple(_wheel(path) for path in sorted(folder.glob("*.whl")))


def _wheel(path: Path) -> LockedWheel:
    name, version, _, _ = parse_wheel_filename(path.name)
    size = path.stat().st_size
    return LockedWheel(
        package=name, version=str(version), file=path.name, sha256=file_digest(path), size=size
    )


def _compilers(compiler: HostCompiler, kept: Locked) -> tuple[LockedCompiler, ...]:
    every = dict.fromkeys(item.model_dump_json() for item in kept.compiler)
    every[locked_compiler(compiler).model_dump_json()] = None
    found = (LockedCompiler.model_validate_json(text) for text in every)
    return tuple(sorted(found, key=lambda item: (Version(item.version), item.cc1plus_sha256)))


def _images(engine: Engine | NoEngine, kept: Locked) -> Iterable[LockedImage]:
    if isinstance(engine, NoEngine):
        console.note(f"base images are left as they were: {engine.reason}")
        yield from kept.image
        return
    for base in BASES:
        known = kept.image_of(base)
        found = None if known else engine.base_digest(base)
        if known is not None:
            yield known
        elif found is not None:
            yield LockedImage(base=base, digest=found)
