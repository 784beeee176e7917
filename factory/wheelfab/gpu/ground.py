"""Where the loop on devices runs: a GPU container, processes here, or under the fake driver."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wheelfab.containers import Engine
from wheelfab.gpu.report import Ground
from wheelfab.host import (
    DEFAULT_BASE,
    DriverPlace,
    Expectation,
    Host,
    HostDriver,
    HostImage,
    TorchChoice,
    Way,
)
from wheelfab.hosts.arrange import arrange
from wheelfab.hosts.places import Place, ProcessPlace, open_place
from wheelfab.hosts.sites import Site

EXERCISE = Path(__file__).with_name("exercise.py")
DEVICES = "8.0,9.0"  # of the fake driver, unless FAKECUDA_DEVICES says otherwise
_FAKE = ("FAKECUDA_", "FAKENVML_")
_OURS = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True, kw_only=True, slots=True)
class Footing:
    """A place that is up. Every process there gets ``environment``; plans lie in ``folder``."""

    ground: Ground
    place: Place
    environment: Mapping[str, str]
    folder: Path


@contextmanager
def open_footing(
    engine: Engine | None, site: Site, folder: Path, libraries: Path, *, emulated: bool
) -> Iterator[Footing]:
    """A container of ``engine`` with all GPUs and ``site``, or without one processes here.

    ``folder`` is its own, compiled drivers are kept in ``libraries``. Raises ``NoDeviceError`` when
    the engine gives no GPU, ``ToolchainError`` when the fake driver cannot be made.
    """
    host = _host(emulated=emulated)
    things = arrange(host, folder, libraries)
    environment = {**things.environment, **_settings(emulated=emulated)}
    if engine is None:
        ground = Ground.EMULATED if emulated else Ground.PROCESS
        yield Footing(ground=ground, place=ProcessPlace(), environment=environment, folder=folder)
        return
    things = replace(things, folders=(*things.folders, EXERCISE.parent))
    environment.pop("LD_LIBRARY_PATH", None)  # names folders of this machine
    with open_place(host, things, [site], engine, folder) as place:
        yield Footing(ground=Ground.CONTAINER, place=place, environment=environment, folder=folder)


def _settings(*, emulated: bool) -> dict[str, str]:
    """What the loads get of our own environment: which driver and devices, or how the fake is."""
    if not emulated:
        return {name: os.environ[name] for name in _OURS if name in os.environ}
    own = {name: value for name, value in os.environ.items() if name.startswith(_FAKE)}
    return {"FAKECUDA_DEVICES": DEVICES, **own}


def _host(*, emulated: bool) -> Host:
    return Host(
        name="gpu",
        group="gpu",
        help="",
        base=DEFAULT_BASE,
        image=HostImage.GPU,
        driver=HostDriver.FAKE if emulated else HostDriver.NONE,
        driver_place=DriverPlace.PATH,
        driver_release=None,
        nvml=False,
        pollution=(),
        environment={},
        environment_after=(),
        files={},
        programs={},
        options=(),
        python=(),
        way=Way.PLAIN,
        torch=TorchChoice.OWN,
        cpu=None,
        emulated=emulated,
        variants=(),
        count=None,
        at_once=1,
        expect=Expectation(
            status="ready",
            without_code="",
            without_ptx="",
            says=(),
            images=None,
            error=(),
            error_for=None,
        ),
    )
