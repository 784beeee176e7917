"""The kernels as their sources declare them: one FW_KERNEL line each."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from .build import CSRC

_KERNEL = re.compile(
    r"^FW_KERNEL\((?P<name>\w+), (?P<threads>\w+),\s+(?P<record>\w+),[^)]*\)\n", re.MULTILINE
)


def sources() -> list[Path]:
    """All .cu files."""
    return sorted((CSRC / "kernels").glob("*.cu"))


def kernels(source: Path) -> dict[str, str]:
    """Kernel name to its record's name, in the file's order."""
    return {m["name"]: m["record"] for m in _KERNEL.finditer(source.read_text())}


def only(text: str, names: Collection[str]) -> str:
    """The source without the instantiations that are not in ``names``."""
    return _KERNEL.sub(lambda match: match[0] if match["name"] in names else "", text)


ALL_KERNELS = {name: record for path in sources() for name, record in kernels(path).items()}
