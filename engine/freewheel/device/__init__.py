"""Hardware as something one can ask: ``freewheel.device.state()``.

The answer is a frozen record with a status, a reason, a next step and the devices. The driver is
only ever asked in a child process, because a broken one crashes or hangs whoever asks it; nothing
here raises because of it. Importing this starts nothing and opens nothing.

Environment:

``FREEWHEEL_PROBE_TIMEOUT``
    Seconds that the driver may take to answer, 30 unless given.
"""

from __future__ import annotations

from freewheel.device.query import capability, device_count, memory, state
from freewheel.device.record import Asked, Device, DeviceState, Fallback, Layer, Status
from freewheel.device.requirement import DeviceRequirement, Needs

__all__ = [
    "Asked",
    "Device",
    "DeviceRequirement",
    "DeviceState",
    "Fallback",
    "Layer",
    "Needs",
    "Status",
    "capability",
    "device_count",
    "memory",
    "state",
]
