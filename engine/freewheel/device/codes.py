"""Results of the driver (cuda.h): the status each means, why, and what to do."""

from __future__ import annotations

from freewheel.device.record import Status

INSTALL = "install the NVIDIA driver; in a container, start it with the NVIDIA runtime (--gpus all)"
INSTALL_WSL = (
    "install the NVIDIA driver in Windows, which puts libcuda.so.1 into /usr/lib/wsl/lib, and none "
    "in Linux; /dev/dxg needs WSL 2"
)
LOAD_UVM = (
    "load the module (modprobe nvidia_uvm, nvidia-modprobe -u -c 0); in a container, let "
    "/dev/nvidia-uvm in"
)
ONE_DRIVER = (
    "let the loader find one libcuda.so.1 only, that of the running kernel module: remove compat "
    "and stub folders from LD_LIBRARY_PATH and the loader's cache, or reboot after an upgrade"
)
ALLOW = "allow processes on it again: nvidia-smi -c 0, as root"
FREE_IT = "wait, or end what uses the device"
RESTART = "reinstall the NVIDIA driver, or restart the machine"
# cuInit's results (cuda.h): status, meaning, next step.
CODES: dict[int, tuple[Status, str, str]] = {
    2: (Status.BUSY, "the device has no free memory", "wait, or end what uses it"),
    34: (Status.MISMATCH, "the library is the toolkit's stub, not a driver", ONE_DRIVER),
    35: (Status.MISMATCH, "the driver is too old for the library", "install a newer driver"),
    46: (Status.BUSY, "the device is taken", "wait, or end what uses it"),
    100: (Status.NO_DEVICE, "the driver finds no device", INSTALL),
    101: (Status.NO_DEVICE, "the driver finds no such device", "mend CUDA_VISIBLE_DEVICES"),
    304: (
        Status.UNKNOWN,
        "a system call failed in the driver",
        "check that /dev/nvidia* exist and may be opened, nvidia-uvm included",
    ),
    802: (
        Status.BUSY,
        "the system is not ready yet",
        "wait for nvidia-fabricmanager, or start it (machines with NVSwitch)",
    ),
    803: (
        Status.MISMATCH,
        "the driver library and the kernel module are of different versions",
        ONE_DRIVER,
    ),
    804: (
        Status.MISMATCH,
        "a forward-compatibility libcuda, which this device does not support, shadows the driver's",
        ONE_DRIVER,
    ),
}
