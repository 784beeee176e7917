"""What every part of an engine that needs a device implements, and what such a need can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from freewheel.device.record import DeviceState
from freewheel.errors import DeviceError


@runtime_checkable
class DeviceRequirement(Protocol):
    """A part that must not be built on a device it cannot use."""

    def validate_device(self, state: DeviceState) -> None:
        """Return when ``state`` will do; otherwise raise with its reason and its next step."""


@dataclass(frozen=True)
class Needs:
    """A requirement in numbers: so many usable devices, each at least as capable as this.

    ``memory`` is in bytes of a device, in all. ``Needs(devices=0)`` is that of a part that runs on
    the CPU: any state will do.
    """

    devices: int = 1
    capability: tuple[int, int] = (0, 0)
    memory: int = 0

    def validate_device(self, state: DeviceState) -> None:
        """Raise ``DeviceError`` unless ``state`` has enough such devices."""
        if self.devices <= 0:
            return
        if not state.is_ready():
            raise DeviceError(f"{state.status}: {state.reason}", next_step=state.next_step)
        fitting = [
            device
            for device in state.usable
            if (device.capability or (0, 0)) >= self.capability
            and (device.total_memory or 0) >= self.memory
        ]
        if len(fitting) < self.devices:
            raise DeviceError(
                f"{self.devices} devices{self._words()} are needed, and {len(fitting)} of the "
                f"{len(state.devices)} visible ones will do",
                next_step="make more devices visible, or ask for less",
            )

    def _words(self) -> str:
        words = []
        if self.capability > (0, 0):
            words.append(f"capability {self.capability[0]}.{self.capability[1]}")
        if self.memory:
            words.append(f"{self.memory / 2**30:.1f} GiB")
        return f" of {' and '.join(words)}" if words else ""
