"""Builds what these tests load, once, kept in pytest's cache folder, and runs child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import build, cubin
from tests.drivers.child import ROOT, Run
from tests.fibers import build as fibers_build
from tests.fibers.emulation import Emulation
from wheelfab.drivers import DriverKind, make_driver


@pytest.fixture(scope="session")
def build_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled libraries are kept between sessions, or for this one without a cache."""
    cache = getattr(request.config, "cache", None)
    return Path(cache.mkdir("drivers")) if cache else tmp_path_factory.mktemp("drivers")


@pytest.fixture(scope="session")
def fake_driver(build_folder: Path) -> Path:
    """The folder of the fake ``libcuda.so.1``."""
    return make_driver(DriverKind.FAKE, build_folder)


@pytest.fixture(scope="session")
def emulation(build_folder: Path) -> Path:
    """The library that runs the kernels on the CPU."""
    return fibers_build.build(build_folder / "fibers")


@pytest.fixture(scope="session")
def kernels(emulation: Path) -> dict[str, dict[str, cubin.Kernel]]:
    """What the cubin of each ``.cu`` says of its kernels, from the kernels themselves."""
    described = Emulation(emulation)
    images: dict[str, dict[str, cubin.Kernel]] = {}
    for image, names in described.images().items():
        for name in names:
            kernel = described.kernel(name)
            sizes = list(kernel.param_sizes[: kernel.param_count])
            images.setdefault(image, {})[name] = cubin.Kernel(params=sizes)
    return images


@pytest.fixture(scope="session")
def containers(kernels: Mapping[str, Mapping[str, cubin.Kernel]]) -> dict[str, bytes]:
    """The fatbin container of each ``.cu``, for ``cubin.ARCHS``, as CUDA 12.1 makes it."""
    return {image: cubin.images(named, cubin.ARCHS) for image, named in kernels.items()}


@pytest.fixture(scope="session")
def harness(build_folder: Path, containers: Mapping[str, bytes]) -> Path:
    """The CUDA half of ``_kernels`` over ``containers``."""
    return build.build_kernels(build_folder, build.Images(containers=containers))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The fake driver's log."""
    return tmp_path / "fakecuda.log"


@pytest.fixture
def run(harness: Path, fake_driver: Path, emulation: Path, log: Path) -> Run:
    """Runs Python in a child process under the fake driver; gives what it left in ``result``.

    The code finds ``harness`` (``abi.Harness``), ``records`` and ``fake()`` (``abi.FakeDriver``).
    Settings of the fake are given without their prefix: ``run(code, devices="9.0")``.
    """

    def call(
        code: str, *, driver: Path | None = fake_driver, library: Path = harness, **settings: str
    ) -> Any:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(ROOT),
            "FAKECUDA_LOG": str(log),
            "FAKECUDA_KERNELS": str(emulation),
            **{f"FAKECUDA_{name.upper()}": value for name, value in settings.items()},
        }
        if driver is not None:
            environment["LD_LIBRARY_PATH"] = str(driver)
        start = (
            "import json\nfrom tests.drivers import abi\n"
            "from tests.drivers.abi import FakeDriver as fake\n"
            "from tests.fibers.records import records as _records\n"
            f"records, harness, result = _records(), abi.Harness({str(library)!r}), None\n"
        )
        text = f"{start}{code}\nprint('RESULT', json.dumps(result))"
        command = [sys.executable, "-c", text]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout.rpartition("RESULT ")[2])

    return call
