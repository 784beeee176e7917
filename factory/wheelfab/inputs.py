"""Whether the inputs of a build are those of the lock: what differs, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from wheelfab.errors import ToolchainError, one_of_many
from wheelfab.locked import ADD, LOCK, RENEW, Locked, LockedCompiler, LockedWheel
from wheelfab.store import Store
from wheelfab.toolchain.host import HostCompiler
from wheelfab.toolchain.pins import PinnedWheel, pinned
from wheelfab.toolchain.tools import ROOTS, fetch_tools
from wheelfab.toolchain.torch import torch_tree
from wheelfab.toolchain.wheels import fetch_toolchain
from wheelfab.variant import Cell


def check_inputs(locked: Locked, cells: Sequence[Cell]) -> None:
    """Compare what ``cells`` are made of with the lock, before anything is fetched.

    Raises ``ToolchainError`` that lists every difference. The host compiler is no difference:
    ``is_locked_compiler`` tells whether its bytes are promised.
    """
    flaws = [*_tool_flaws(locked), *_toolchain_flaws(locked, cells), *_torch_flaws(locked, cells)]
    if flaws:
        raise one_of_many(flaws)


def fetch_inputs(locked: Locked | None, cells: Sequence[Cell], store: Store) -> None:
    """Fetch all that a build of ``cells`` would, so that it only reads ``store``."""
    if locked is not None:
        fetch_tools(store, locked.requirement)
    for cell in cells:
        variant, headers = cell.variant, cell.pin.headers
        if variant.cuda is not None:
            fetch_toolchain(store, variant.toolchain, variant.cuda)
        index = variant.torch_index
        torch_tree(
            store,
            release=headers,
            index=index,
            fallback=variant.torch_fallback,
            locked=locked.torch_of(str(headers), index) if locked else None,
        )


def locked_compiler(compiler: HostCompiler) -> LockedCompiler:
    """How the lock writes a compiler."""
    return LockedCompiler(
        version=str(compiler.version),
        target=compiler.target,
        driver_sha256=compiler.driver_sha256,
        cc1plus_sha256=compiler.cc1plus_sha256,
        tools=dict(compiler.tools),
    )


def is_locked_compiler(locked: Locked, compiler: HostCompiler) -> bool:
    """Whether the lock lists just this compiler, by its digests."""
    return locked_compiler(compiler) in locked.compiler


def compiler_listed(locked: Locked | None, record: object) -> bool | None:
    """Whether the lock lists the compiler of a build's record; ``None`` where that is not told."""
    host = record.get("compilers", {}).get("host") if isinstance(record, Mapping) else None
    if locked is None or not isinstance(host, Mapping):
        return None
    known = (item.model_dump() for item in locked.compiler)
    return {name: host.get(name) for name in LockedCompiler.model_fields} in known


def compiler_flaw(locked: Locked, compiler: HostCompiler) -> ToolchainError:
    """What is to be said of a compiler that the lock does not list."""
    known = ", ".join(
        f"g++ {item.version} ({item.cc1plus_sha256[:12]})" for item in locked.compiler
    )
    return ToolchainError(
        f"g++ {compiler.version} ({compiler.cc1plus_sha256[:12]}) at {compiler.path} is not the "
        f"lock's: {known or 'none'}; its wheels work, but no bytes are promised for them",
        where=f"{LOCK}: compiler",
        next_step="run `wheelfab lock` to add it, or build with --container",
    )


def _tool_flaws(locked: Locked) -> Iterator[ToolchainError]:
    have = {item.package for item in locked.requirement}
    missing = [name for name in ROOTS if name not in have]
    if missing:
        yield _flaw("requirement", f"has no {', '.join(missing)}", ADD)


def _toolchain_flaws(locked: Locked, cells: Sequence[Cell]) -> Iterator[ToolchainError]:
    used = {
        (str(cell.variant.toolchain), str(cell.variant.cuda)) for cell in cells if cell.variant.cuda
    }
    for route, cuda in sorted(used):
        where = f"toolchain {route} {cuda}"
        entry = locked.toolchain_of(route, cuda)
        if entry is None:
            yield _flaw(where, "not in the lock", ADD)
            continue
        theirs = {item.package: item for item in entry.wheel}
        ours = {item.package: item for item in pinned(route, Version(cuda)).wheels}
        for package in sorted(theirs.keys() | ours.keys()):
            if difference := _difference(ours.get(package), theirs.get(package)):
                yield _flaw(where, f"{package} {difference}", RENEW)


def _difference(ours: PinnedWheel | None, theirs: LockedWheel | None) -> str:
    if ours is None or theirs is None:
        return "is only in the lock" if ours is None else "is not in the lock"
    if ours.version != theirs.version:
        return f"is {ours.version} in facts/toolchains.toml, {theirs.version} in the lock"
    if ours.sha256 != theirs.sha256:
        return (
            f"{ours.version} has SHA-256 {ours.sha256} in facts/toolchains.toml, "
            f"{theirs.sha256} in the lock"
        )
    return ""


def _torch_flaws(locked: Locked, cells: Sequence[Cell]) -> Iterator[ToolchainError]:
    strict = {
        (str(cell.pin.headers), cell.variant.torch_index)
        for cell in cells
        if cell.variant.torch_fallback is None
    }
    for release, index in sorted(
        {(str(cell.pin.headers), cell.variant.torch_index) for cell in cells}
    ):
        try:
            torch = locked.torch_of(release, index)
        except ToolchainError as flaw:
            yield flaw
            continue
        if torch.fell_back and (release, index) in strict:
            what = f"was locked from the fallback index, which a row of {index} does not allow"
            step = f'run `wheelfab lock` where {index} answers, or allow torch-fallback = "pypi"'
            yield _flaw(f"torch {release}", what, step)


def _flaw(where: str, what: str, next_step: str) -> ToolchainError:
    return ToolchainError(what, where=f"{LOCK}: {where}", next_step=next_step)
