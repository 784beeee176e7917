"""The machine's g++: found on the PATH, asked for its version, known by its digests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from packaging.version import InvalidVersion, Version

from wheelfab.errors import ToolchainError
from wheelfab.records import file_digest
from wheelfab.run import run, tool_environment

OLDEST = Version("11.3")  # what torch's headers want from 2.13 on
_TOOLS = ("as", "cc1", "ld")
_INSTALL = "install g++ (Debian, Ubuntu: apt install g++; Fedora, RHEL: dnf install gcc-c++)"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCompiler:
    """A g++ and its gcc, known by their programs' digests, wherever they lie.

    ``cc1plus`` is the compiler proper; ``tools`` are what it works with: ``cc1``, ``as``, ``ld``.
    """

    path: Path
    cc: Path
    version: Version
    target: str
    driver_sha256: str
    cc1plus_sha256: str
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def placeless(self) -> HostCompiler:
        """The same compiler without its folder, which decides nothing about what it makes."""
        return replace(self, path=Path("g++"), cc=Path("gcc"))


def host_compiler(oldest: Version = OLDEST) -> HostCompiler:
    """The g++ on the PATH; ``CXX`` and ``CC`` are not looked at.

    Raises ``ToolchainError`` when there is none, when it is not GNU's, or older than ``oldest``.
    """
    found = shutil.which("g++")
    if found is None:
        raise ToolchainError("no C++ compiler on the PATH", next_step=_INSTALL)
    compiler = _examine(Path(found))
    if compiler.version < oldest:
        raise ToolchainError(
            f"g++ {compiler.version} is too old: {oldest} is wanted",
            where=str(compiler.path),
            next_step=_INSTALL,
        )
    return compiler


@cache
def _examine(path: Path) -> HostCompiler:
    maker = _ask(path, "--version")
    if "Free Software Foundation" not in maker:
        raise ToolchainError(
            f"not GNU's g++: {maker.partition(chr(10))[0]}", where=str(path), next_step=_INSTALL
        )
    cc = path.with_name("gcc")
    version = _version(path)
    if not cc.exists() or _version(cc) != version:
        raise ToolchainError(
            f"no gcc {version} beside it", where=str(path), next_step="install gcc and g++ together"
        )
    cc1plus = Path(_ask(path, "-print-prog-name=cc1plus").strip())
    if not cc1plus.is_absolute():
        raise ToolchainError("g++ has no cc1plus", where=str(path), next_step=_INSTALL)
    return HostCompiler(
        path=path,
        cc=cc,
        version=version,
        target=_ask(path, "-dumpmachine").strip(),
        driver_sha256=file_digest(path.resolve()),
        cc1plus_sha256=file_digest(cc1plus),
        tools={name: file_digest(tool) for name in _TOOLS if (tool := _tool(path, name))},
    )


def _tool(path: Path, name: str) -> Path | None:
    """Where the compiler takes program ``name`` from; a bare answer means the PATH."""
    said = _ask(path, f"-print-prog-name={name}").strip()
    found = shutil.which(said) if said else None
    return Path(found).resolve() if found else None


def _version(path: Path) -> Version:
    text = _ask(path, "-dumpfullversion").strip()
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ToolchainError(f"cannot read its version {text!r}", where=str(path)) from error


def _ask(path: Path, question: str) -> str:
    done = run((str(path), question), env=tool_environment(), timeout=20)
    if not done.ok:
        raise ToolchainError(
            f"{question}: {done.ending}: {done.stderr.strip()[:200]}",
            where=str(path),
            next_step=_INSTALL,
        )
    return done.stdout
