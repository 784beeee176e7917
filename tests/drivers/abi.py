"""The table of ``csrc/abi`` for ctypes, and the test libraries that ``build.py`` makes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

_TEXT = 2048  # bytes for a sentence


OPERATIONS = {
    "rms_norm": "FwRmsNormArgs",
    "fused_add_rms_norm": "FwFusedAddRmsNormArgs",
    "silu_and_mul": "FwSiluAndMulArgs",
    "rotary_embedding": "FwRotaryEmbeddingArgs",
    "reshape_and_cache": "FwReshapeAndCacheArgs",
    "paged_attention": "FwPagedAttentionArgs",
}


class Exec(ctypes.Structure):
    """``FwExec``."""

    _fields_: ClassVar = [
        ("device", c_int32),
        ("reserved", c_int32),
        ("stream", c_void_p),
        ("parallel_for", c_void_p),
        ("error", c_char_p),
        ("error_size", c_int64),
    ]


_OPERATION = ctypes.CFUNCTYPE(c_int32, POINTER(Exec), c_void_p)
_SPLITS = ctypes.CFUNCTYPE(c_int32, POINTER(Exec), c_void_p, c_int64)
_ON_EXEC = ctypes.CFUNCTYPE(c_int32, POINTER(Exec))


class Table(ctypes.Structure):
    """``FwKernels``."""

    _fields_: ClassVar = [
        ("size", c_int64),
        ("interface_version", c_int64),
        *((name, _OPERATION) for name in OPERATIONS),
        ("paged_attention_splits", _SPLITS),
        ("warm_up", _ON_EXEC),
        ("cpu_isa", c_void_p),
        ("archs", ctypes.CFUNCTYPE(c_char_p)),
        ("cpu_isas", c_void_p),
        ("driver_process", ctypes.CFUNCTYPE(c_int32)),
    ]


class Chosen(NamedTuple):
    """What the image reader makes of a container, a capability and a driver."""

    name: str  # "9.0a", "9.0+PTX", "" for none
    archs: str
    error: str
    image: bytes  # for the driver


class Harness:
    """The CUDA half of ``_kernels``. Sentences are returned, "" for success."""

    def __init__(self, path: Path | str) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.freewheel_kernels.restype = POINTER(Table)
        self.library.harness_choose.restype = c_int64
        self.table: Any = self.library.freewheel_kernels().contents

    def open(self) -> str:
        """Open the driver."""
        text = ctypes.create_string_buffer(_TEXT)
        self.library.harness_open(text, c_size_t(_TEXT))
        return text.value.decode()

    def call(
        self,
        operation: str,
        args: ctypes.Structure | None = None,
        *,
        device: int = 0,
        stream: int | None = None,
    ) -> str:
        """Run an operation of the table, or ``warm_up``."""
        text = ctypes.create_string_buffer(_TEXT)
        where = Exec(device, 0, stream, None, ctypes.cast(text, c_char_p), _TEXT)
        function = getattr(self.table, operation)
        given = (
            (ctypes.byref(where),) if args is None else (ctypes.byref(where), ctypes.byref(args))
        )
        failed = bool(function(*given))
        if failed != bool(text.value):
            raise AssertionError(f"{operation}: returned {failed} with {text.value!r}")
        return text.value.decode()

    def splits(self, args: ctypes.Structure, longest: int, *, device: int = 0) -> int:
        """The number of context splits for an attention call."""
        text = ctypes.create_string_buffer(_TEXT)
        where = Exec(device, 0, None, None, ctypes.cast(text, c_char_p), _TEXT)
        function = self.table.paged_attention_splits
        return int(function(ctypes.byref(where), ctypes.byref(args), longest))

    def archs(self) -> str:
        """The archs that all images hold."""
        return str(self.table.archs().decode())

    def launch(
        self,
        image: str,
        kernel: str,
        args: ctypes.Structure,
        *,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        shared_bytes: int = 0,
        stream: int | None = None,
        device: int = 0,
    ) -> str:
        """One launch of any shape."""
        text = ctypes.create_string_buffer(_TEXT)
        three = c_uint32 * 3
        self.library.harness_launch(
            c_int32(device),
            image.encode(),
            kernel.encode(),
            three(*grid),
            three(*block),
            c_uint32(shared_bytes),
            ctypes.byref(args),
            c_void_p(stream),
            text,
            c_size_t(_TEXT),
        )
        return text.value.decode()

    def choose(self, container: bytes, capability: tuple[int, int], driver: int) -> Chosen:
        """Read a container and choose the image for a capability and a driver (12010: 12.1)."""
        texts = [ctypes.create_string_buffer(_TEXT) for _ in range(3)]
        image = ctypes.create_string_buffer(len(container) + 64)
        size = self.library.harness_choose(
            container,
            c_int64(len(container)),
            c_int32(capability[0]),
            c_int32(capability[1]),
            c_int32(driver),
            *texts,
            image,
            c_size_t(_TEXT),
        )
        name, archs, error = (text.value.decode() for text in texts)
        return Chosen(name=name, archs=archs, error=error, image=image.raw[: max(size, 0)])


class FakeDriver:
    """The fake driver of this process, as ``make_driver`` made it: its counters."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        for name in ("fakecuda_last_refusal", "fakecuda_last_kernel"):
            getattr(self.library, name).restype = c_char_p
        for name in ("fakecuda_calls", "fakecuda_launches", "fakecuda_captured"):
            getattr(self.library, name).restype = c_int64
        self.library.fakecuda_current_contexts.restype = c_int64
        self.library.fakecuda_last_stream.restype = c_void_p

    def calls(self, name: str) -> int:
        """How often an entry point was called."""
        return int(self.library.fakecuda_calls(name.encode()))

    def count(self, what: str) -> int:
        """``launches``, ``captured`` (launches into a capturing stream), ``current_contexts``."""
        return int(getattr(self.library, f"fakecuda_{what}")())

    def last(self, what: str) -> str:
        """``refusal`` or ``kernel``: the last one."""
        return str(getattr(self.library, f"fakecuda_last_{what}")().decode())

    def last_stream(self) -> int | None:
        """The stream of the last launch, None for the default one."""
        stream = self.library.fakecuda_last_stream()
        return None if stream is None else int(stream)
