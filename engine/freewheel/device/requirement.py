"""What every part of an engine that needs a device implements."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from freewheel.device.record import DeviceState


@runtime_checkable
class DeviceRequirement(Protocol):
    """A part that must not be built on a device it cannot use."""

    def validate_device(self, state: DeviceState) -> None:
        """Return when ``state`` will do; otherwise raise with its reason and its next step."""
