"""The loop on devices: fresh loads, an operation on each device, a soak with memory watched.

Where no GPU answers it is an error, never a result. The same loop runs under the fake driver with
the project's emulation, and says so: nothing of that was on a device.
"""

from __future__ import annotations

from wheelfab.gpu.loop import GpuOptions, gpu_loop
from wheelfab.gpu.report import GpuResult, OnDevice, show_results

__all__ = ["GpuOptions", "GpuResult", "OnDevice", "gpu_loop", "show_results"]
