"""The emulation library, built once and kept in pytest's cache folder between sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from .build import build
from .emulation import Emulation


@pytest.fixture(scope="session")
def build_folder(pytestconfig: pytest.Config) -> Path:
    """Where emulation libraries and their objects are kept."""
    return Path(pytestconfig.cache.mkdir("fibers"))


@pytest.fixture(scope="session")
def emulation(build_folder: Path) -> Emulation:
    """All kernels of csrc/kernels."""
    return Emulation(build(build_folder))
