"""What is known of the hardware: frozen records, statuses, and what a caller can do about each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class _Word(str, Enum):
    """A string constant; ``enum.StrEnum`` came with Python 3.11."""

    def __str__(self) -> str:
        return str(self.value)


class Status(_Word):
    """Whether CUDA can be used, and why not."""

    READY = "ready"
    CUDA_UNAVAILABLE = "cuda_unavailable"  # no driver library, or none that loads
    NO_DEVICE = "no_device"  # a driver without a device, or all hidden
    BUSY = "busy"  # no free memory, taken exclusively, or still starting
    PROHIBITED = "prohibited"  # the device's compute mode lets nobody use it
    MISMATCH = "mismatch"  # driver, kernel module and wheel do not fit together
    NO_IMAGE = "no_image"  # the wheel has no device code for any device
    DRIVER_CRASHED = "driver_crashed"  # it killed or ended the process that asked it
    DRIVER_HUNG = "driver_hung"
    FORKED = "forked"  # CUDA was used before this process was forked, which no driver survives
    UNKNOWN = "unknown"  # an answer that is none of the above; see ``code``


class Fallback(_Word):
    """What a caller can do in a status that is not ready."""

    USE_CPU = "use_cpu"  # the machine has no GPU to use: run on the CPU
    WAIT = "wait"  # ask again later
    FAIL = "fail"  # a person must mend something


class Asked(_Word):
    """How the driver was asked."""

    NOT_ASKED = "not asked"  # there is no driver library
    PROGRAM = "program"  # freewheel/_probe in a child process
    PYTHON = "python"  # ctypes in a child Python, because the program could not be started
    FAILED = "failed"  # neither could be started


_FALLBACK = {
    Status.CUDA_UNAVAILABLE: Fallback.USE_CPU,
    Status.NO_DEVICE: Fallback.USE_CPU,
    Status.BUSY: Fallback.WAIT,
    Status.PROHIBITED: Fallback.FAIL,
    Status.MISMATCH: Fallback.FAIL,
    Status.NO_IMAGE: Fallback.FAIL,
    Status.DRIVER_CRASHED: Fallback.FAIL,
    Status.DRIVER_HUNG: Fallback.FAIL,
    Status.FORKED: Fallback.FAIL,
    Status.UNKNOWN: Fallback.FAIL,
}


@dataclass(frozen=True)
class Device:
    """One visible device.

    ``capability`` is (9, 0) for 9.0; memory is in bytes; ``uuid`` begins with ``GPU-`` or ``MIG-``.
    ``image`` is what the installed wheel would run on it: ``"8.0"`` (a cubin), ``"9.0+PTX"``
    (compiled by the driver), or ``None``. What the driver does not tell is ``None``.
    """

    ordinal: int
    name: str | None
    capability: tuple[int, int] | None
    total_memory: int | None
    free_memory: int | None
    uuid: str | None
    mig: bool
    image: str | None
    note: str = ""  # why it cannot be used although others can


@dataclass(frozen=True)
class Layer:
    """One step of asking: ``files``, ``dlopen``, ``cuInit``, ``count`` or ``devices``.

    ``passed`` is ``None`` where it was not reached. ``code`` and ``name`` are the driver's result.
    The first layer only explains: the others are asked whatever it found.
    """

    layer: str
    passed: bool | None
    reason: str
    code: int | None = None
    name: str | None = None


@dataclass(frozen=True)
class DeviceState:
    """The machine's CUDA devices as this wheel can use them, at the time of asking.

    ``driver_version`` is cuDriverGetVersion's number (12040 for CUDA 12.4), ``module_version`` the
    kernel module's release (``535.309.01``), ``library`` the ``libcuda.so.1`` that is loaded.
    ``libraries`` are all that the loader can reach, in its order. ``code`` is the driver's result
    where one explains the status. ``notes`` are findings that did not decide it, ``layers`` how far
    the asking came.
    """

    status: Status
    reason: str
    next_step: str = ""
    code: int | None = None
    driver_version: int | None = None
    module_version: str | None = None
    library: str | None = None
    libraries: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    archs: tuple[str, ...] = ()
    asked: Asked = Asked.NOT_ASKED
    deep: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()

    def is_ready(self) -> bool:
        """Whether a CUDA operation of freewheel can run on at least one device."""
        return self.status is Status.READY

    @property
    def fallback(self) -> Fallback | None:
        """What to do instead of using CUDA; ``None`` when it is ready."""
        if self.status is Status.NO_IMAGE and not self.archs:
            return Fallback.USE_CPU  # a wheel for the CPU, by choice
        return _FALLBACK.get(self.status)

    @property
    def usable(self) -> tuple[Device, ...]:
        """The devices that an operation can run on now; none unless ready."""
        if not self.is_ready():
            return ()
        return tuple(device for device in self.devices if device.image and not device.note)
