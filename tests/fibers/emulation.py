"""Loads the emulation library and launches kernels in the shapes that launch.h gives."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .records import EmulKernel, ImageKernels, Launch

ORDERS = ("ascending", "descending", "shuffled:1")
_ERROR_BYTES = 512


class EmulationError(Exception):
    """A launch that could not be run to its end, such as a divergent barrier."""


class Emulation:
    """The kernels of one emulation library."""

    def __init__(self, library: Path) -> None:
        """Load ``library``, which ``fibers.build`` made."""
        self._library = ctypes.CDLL(str(library))
        self._library.fw_shape_image.restype = ctypes.POINTER(ImageKernels)
        self._library.fw_shape_misaligned.restype = ctypes.c_char_p
        self._launch = self._library.fw_emul_launch

    def images(self) -> dict[str, tuple[str, ...]]:
        """Image name to kernel names, as launch.h lists them."""
        images = {}
        index = 0
        while image := self._library.fw_shape_image(index):
            names = image.contents.kernels[: image.contents.count]
            images[image.contents.image.decode()] = tuple(name.decode() for name in names)
            index += 1
        return images

    def kernel(self, name: str) -> EmulKernel:
        """The trampoline of a kernel. Raises ``AttributeError`` when there is none."""
        described = EmulKernel()
        getattr(self._library, f"fw_emul_{name}")(ctypes.byref(described))
        return described

    def shape(self, operation: str, args: ctypes.Structure) -> Launch:
        """What launch.h says of an operation's record."""
        launch = Launch()
        getattr(self._library, f"fw_shape_{operation}")(ctypes.byref(args), ctypes.byref(launch))
        return launch

    def splits(self, rows: int, longest: int, processors: int) -> int:
        """``fw_choose_splits``."""
        numbers = (ctypes.c_int64(number) for number in (rows, longest, processors))
        return int(self._library.fw_shape_splits(*numbers))

    def misaligned(self, args: ctypes.Structure) -> str | None:
        """``fw_misaligned``."""
        name = self._library.fw_shape_misaligned(ctypes.byref(args))
        return None if name is None else name.decode()

    def convert(self, function: str, source: int, target: int, count: int) -> None:
        """One of the ``fw_convert_…`` functions, over ``count`` numbers at two addresses."""
        addresses = (ctypes.c_void_p(source), ctypes.c_void_p(target))
        getattr(self._library, function)(*addresses, ctypes.c_int64(count))

    def run(self, operation: str, args: ctypes.Structure) -> None:
        """Launches an operation; an empty grid is no launch. Raises ``EmulationError``."""
        shape = self.shape(operation, args)
        if shape.kernel is None:
            raise EmulationError(f"{operation}: no kernel for this record")
        if 0 not in shape.grid[:]:
            self.launch(shape.kernel.decode(), shape.grid[:], shape.block[:], args)

    def launch(
        self,
        kernel: str,
        grid: list[int],
        block: list[int],
        *params: ctypes.Structure | ctypes.c_int32 | ctypes.c_void_p,
    ) -> None:
        """Runs any kernel of the library over a grid. Raises ``EmulationError``."""
        described = self.kernel(kernel)
        sizes = described.param_sizes[: described.param_count]
        if sizes != [ctypes.sizeof(param) for param in params]:
            raise EmulationError(f"{kernel}: parameters of {sizes} bytes")
        pointers = (ctypes.c_void_p * len(params))(*(ctypes.addressof(p) for p in params))
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        failed = self._launch(
            ctypes.c_void_p(described.run),
            pointers,
            (ctypes.c_uint32 * 3)(*grid),
            (ctypes.c_uint32 * 3)(*block),
            ctypes.c_size_t(0),
            error,
            ctypes.c_size_t(_ERROR_BYTES),
        )
        if failed:
            raise EmulationError(error.value.decode())


@contextmanager
def fiber_order(order: str) -> Iterator[None]:
    """FW_FIBER_ORDER for the launches inside."""
    before = os.environ.get("FW_FIBER_ORDER")
    os.environ["FW_FIBER_ORDER"] = order
    try:
        yield
    finally:
        if before is None:
            del os.environ["FW_FIBER_ORDER"]
        else:
            os.environ["FW_FIBER_ORDER"] = before
