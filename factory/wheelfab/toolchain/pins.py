"""The pinned wheels of each device toolchain: ``facts/toolchains.toml``, read and typed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.version import Version

from wheelfab.errors import ToolchainError

_FILE = Path(__file__).parent.parent / "facts" / "toolchains.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedWheel:
    """One wheel, to the byte. ``size`` in bytes."""

    package: str
    version: str
    file: str
    sha256: str
    size: int

    @property
    def requirement(self) -> str:
        """As a line of a requirements file that pip checks by hash."""
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolchainPins:
    """The wheels of one toolchain, and where in the unpacked tree its parts lie.

    ``compiler``: ``libnvrtc`` or ``nvcc``; ``packer``: ``libnvfatbin``. ``unpacked`` in bytes.
    """

    route: str
    cuda: Version
    wheels: tuple[PinnedWheel, ...]
    unpacked: int
    compiler: PurePosixPath
    packer: PurePosixPath
    include: tuple[PurePosixPath, ...]
    programs: tuple[str, ...]
    links: Mapping[str, str]

    @property
    def name(self) -> str:
        """For people: ``pypi-nvrtc 12.1``."""
        return f"{self.route} {self.cuda}"


def pinned(route: str, cuda: Version) -> ToolchainPins:
    """The pins of ``route`` for that CUDA release.

    Raises ``ToolchainError`` naming what is pinned when this one is not.
    """
    known = {(pins.route, pins.cuda): pins for pins in all_pinned()}
    found = known.get((str(route), cuda))
    if found is None:
        names = ", ".join(pins.name for pins in known.values())
        raise ToolchainError(
            f"no wheels are pinned for {route} {cuda}",
            where="facts/toolchains.toml",
            next_step=f"pinned are {names}",
        )
    return found


@cache
def all_pinned() -> tuple[ToolchainPins, ...]:
    """Every toolchain that is pinned, in the order of the file."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(_pins(table) for table in data["toolchain"])


def _pins(table: Mapping[str, Any]) -> ToolchainPins:
    return ToolchainPins(
        route=table["route"],
        cuda=Version(table["cuda"]),
        wheels=tuple(PinnedWheel(**wheel) for wheel in table["wheel"]),
        unpacked=table["unpacked"],
        compiler=PurePosixPath(table["compiler"]),
        packer=PurePosixPath(table["packer"]),
        include=tuple(PurePosixPath(folder) for folder in table["include"]),
        programs=tuple(table.get("programs", ())),
        links=dict(table.get("links", {})),
    )
