"""What a device compiler is: asked for its version and archs, it turns a source into images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packaging.version import Version


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One source to compile: the file, its include folders (absolute), the C++ standard."""

    source: Path
    include: Sequence[Path]
    standard: str

    @property
    def folders(self) -> tuple[Path, ...]:
        """All include folders; the source's own comes first."""
        return (self.source.absolute().parent, *self.include)


class DeviceCompiler(Protocol):
    """``nvrtc`` or ``nvcc`` of one CUDA release."""

    name: str

    def version(self) -> Version:
        """The CUDA release that the tool itself says it is of: ``12.1``."""
        ...

    def archs(self) -> frozenset[str]:
        """The arch numbers that the tool itself says it compiles for; some leave out suffixes."""
        ...

    def compile(self, unit: Unit, target: str) -> tuple[bytes, str]:
        """The code of ``unit`` for ``sm_XX`` (a cubin) or ``compute_XX`` (PTX), and what was said.

        Raises ``BuildError`` with the compiler's words when the source does not compile.
        """
        ...
