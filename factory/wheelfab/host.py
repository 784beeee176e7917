"""A host: a machine to load wheels on, how it is made, and the answer expected there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

DRIVER_SETTINGS = (  # the variables that the fake driver and its NVML read (docs/drivers.md)
    *("FAKECUDA_DEVICES", "FAKECUDA_FAIL", "FAKECUDA_KERNELS", "FAKECUDA_LOG", "FAKECUDA_MIG"),
    *("FAKECUDA_VERSION", "FAKENVML_FAIL", "FAKENVML_FREE", "FAKENVML_MODE"),
    "FAKENVML_PROCESSES",
)
HERE = "here"  # the name of the machine that wheelfab itself runs on


class HostImage(StrEnum):
    """A target of ``docker/Dockerfile`` that a host starts from."""

    CPU = "cpu-host"
    DRIVER = "driver-host"
    GPU = "gpu-host"


class HostDriver(StrEnum):
    """What lies where a driver library would: nothing, NVIDIA's own (of the image), or a file."""

    NONE = "none"
    REAL = "real"
    FAKE = "fake"
    STUB = "stub"
    UNVERSIONED = "unversioned"
    GARBAGE = "garbage"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    WRONG_MACHINE = "wrong-machine"
    MISSING_SYMBOL = "missing-symbol"


class DriverPlace(StrEnum):
    """How the loader comes to the driver library."""

    PATH = "path"  # LD_LIBRARY_PATH
    CACHE = "loader-cache"  # a compat folder that /etc/ld.so.conf.d names
    WSL = "wsl"  # /usr/lib/wsl/lib, on the path of the loader's cache


class Pollution(StrEnum):
    """An older library that LD_LIBRARY_PATH puts before the one that torch brings."""

    CUDART = "libcudart"
    NVJITLINK = "libnvJitLink"
    STDCXX = "libstdc++"


class HostOption(StrEnum):
    """A way in which a machine is narrower than usual."""

    READ_ONLY = "read-only"
    NOEXEC_TMP = "noexec-tmp"
    NO_PROC = "no-proc"
    SMALL_MEMORY = "small-memory"
    SECCOMP = "seccomp"
    ROOT = "root"
    NO_HOME = "no-home"


class Way(StrEnum):
    """How the wheel is imported."""

    PLAIN = "plain"
    THREADED = "threaded"  # by eight threads at once
    FORKED = "forked"  # in a child forked before anything was imported, and by its parent
    SUBINTERPRETER = "subinterpreter"
    TORCH_FIRST = "torch-first"


class TorchChoice(StrEnum):
    """The torch beside the wheel."""

    OWN = "own"  # of the wheel's own pin
    OTHER = "other-series"  # of another pin of the matrix
    NONE = "none"


class Reach(StrEnum):
    """The least that a host must be made with."""

    PROCESS = "process"
    NAMESPACE = "namespace"
    CONTAINER = "container"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """The answer of a host: the ``status`` that the project's ``state`` gives, and its words.

    ``without_code`` is the status for a wheel that holds no device code, ``without_ptx`` for one
    that holds cubins only, ``forked`` in processes forked after its devices were used (empty: the
    same), ``images`` what is run on each device. ``error`` are words of the clear
    error that the stages with torch end in, if they are meant to; ``error_for`` limits that to pins
    of one ABI.
    """

    status: str
    without_code: str
    without_ptx: str
    says: tuple[str, ...]
    images: tuple[str, ...] | None
    error: tuple[str, ...]
    error_for: str | None
    forked: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine to load on; ``group`` is the table of ``matrix.toml`` that it comes from.

    ``state_limit`` are the seconds after which the state is known there, half a second added.
    ``count`` is of fresh loads, ``None`` for the usual; ``at_once`` of them run together. ``files``
    and ``programs`` map absolute paths to their text.
    """

    name: str
    group: str
    help: str
    base: str
    image: HostImage
    driver: HostDriver
    driver_place: DriverPlace
    driver_release: str | None
    nvml: bool
    pollution: tuple[Pollution, ...]
    environment: Mapping[str, str]
    environment_after: tuple[Mapping[str, str], ...]
    files: Mapping[str, str]
    programs: Mapping[str, str]
    options: tuple[HostOption, ...]
    python: tuple[str, ...]
    way: Way
    torch: TorchChoice
    cpu: str | None
    emulated: bool
    variants: tuple[str, ...]
    count: int | None
    at_once: int
    expect: Expectation
    state_limit: float = 30.0

    @property
    def reach(self) -> Reach:
        """What it takes at least to make it."""
        if self._wants_container:
            return Reach.CONTAINER
        if self.files or HostOption.NO_PROC in self.options:
            return Reach.NAMESPACE
        return Reach.PROCESS

    @property
    def _wants_container(self) -> bool:
        inside = all(path.startswith("/proc/") for path in self.files)
        return (
            self.image is not HostImage.CPU
            or self.base != DEFAULT_BASE
            or self.driver_place is not DriverPlace.PATH
            or Pollution.STDCXX in self.pollution
            or bool(set(self.options) - {HostOption.NO_PROC})
            or bool(self.programs)
            or not inside
        )


DEFAULT_BASE = "debian-12"
