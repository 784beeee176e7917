"""These tests are about an installed wheel, never about the sources beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheelfab.drivers import DriverKind, make_driver

# Threads that spin while they wait slow everything down on a busy machine; read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run against the source tree, which has no native library.

    ``FREEWHEEL_TEST_CUDA`` names a host-CUDA backend; torch gets its device while it is imported.
    """
    del config
    backend = os.environ.get("FREEWHEEL_TEST_CUDA")
    if backend:
        from tests.drivers.host_cuda import HostCuda

        HostCuda(backend)
    import freewheel

    location = Path(freewheel.__file__).resolve()
    if location.is_relative_to(Path(__file__).resolve().parents[2] / "engine"):
        raise pytest.UsageError(f"freewheel is imported from {location.parent}, not from a wheel")


@pytest.fixture(scope="session")
def build_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled drivers are kept between sessions, or for this one without a cache."""
    cache = getattr(request.config, "cache", None)
    return Path(cache.mkdir("drivers")) if cache else tmp_path_factory.mktemp("drivers")


@pytest.fixture(scope="session")
def driver(build_folder: Path) -> Path:
    """The folder of the fake ``libcuda.so.1``."""
    return make_driver(DriverKind.FAKE, build_folder)
