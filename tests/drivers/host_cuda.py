"""Loads the host-CUDA backend into a CPU build of torch."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from pathlib import Path


class HostCuda:
    """A CUDA device over host memory, in this process from now on.

    Made before torch is imported, which asks once, while it is imported, what its CUDA part can do;
    imports torch itself. Tensors reach the device by ``tensor.to("cuda")`` or ``device="cuda"``.
    ``torch.cuda`` stays what it is in a CPU build, ``torch.accelerator`` names the device.
    """

    def __init__(self, library: Path | str) -> None:
        if "torch" in sys.modules:
            raise RuntimeError("the host-CUDA backend must be loaded before torch is imported")
        _load_torchs_libraries()
        self._library = ctypes.CDLL(str(library))
        self._library.host_cuda_stream_requests.restype = ctypes.c_int64
        torch = importlib.import_module("torch")
        torch.cuda._lazy_init = lambda: None  # what Tensor.to asks before the first CUDA tensor

    def set_stream(self, stream: int | None, *, device: int = 0) -> None:
        """Make ``stream`` (a CUstream) torch's current one; None is the default stream."""
        self._library.host_cuda_set_stream(ctypes.c_int32(device), ctypes.c_void_p(stream))

    def stream_requests(self) -> int:
        """How often the current stream was asked for."""
        return int(self._library.host_cuda_stream_requests())


def _load_torchs_libraries() -> None:
    """Load those that the backend needs from the torch that will be imported, wherever it lies."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise RuntimeError("the host-CUDA backend needs torch, which is not installed")
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(Path(found.origin).parent / "lib" / name))
