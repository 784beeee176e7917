"""The argument records of csrc/abi/ops.h as ctypes structures, read from that file itself."""

from __future__ import annotations

import ctypes
import re
from functools import cache

from .build import CSRC

_RECORD = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*")
_FIELD = re.compile(r"(?:const )?(?P<type>\w+)(?P<pointer>\*?) (?P<names>\w+(?:, \w+)*)")
_TYPES: dict[str, type] = {
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "float": ctypes.c_float,
}


class Launch(ctypes.Structure):
    """FwLaunch of csrc/kernels/launch.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("image", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
    )


class ImageKernels(ctypes.Structure):
    """FwImageKernels of csrc/kernels/launch.h."""

    _fields_ = (
        ("image", ctypes.c_char_p),
        ("kernels", ctypes.POINTER(ctypes.c_char_p)),
        ("count", ctypes.c_int32),
    )


class EmulKernel(ctypes.Structure):
    """FwEmulKernel of emulation.h."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("param_count", ctypes.c_int32),
        ("param_sizes", ctypes.POINTER(ctypes.c_uint16)),
    )


@cache
def records() -> dict[str, type[ctypes.Structure]]:
    """Record name (``FwRmsNormArgs``) to structure."""
    text = _COMMENT.sub("", (CSRC / "abi/ops.h").read_text())
    return {name: _structure(name, body) for name, body in _RECORD.findall(text)}


def _structure(name: str, body: str) -> type[ctypes.Structure]:
    fields: list[tuple[str, type]] = []
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        match = _FIELD.fullmatch(declaration)
        if match is None:
            raise ValueError(f"ops.h: {name}: cannot read {declaration!r}")
        kind = ctypes.c_void_p if match["pointer"] else _TYPES[match["type"]]
        fields += [(field, kind) for field in match["names"].split(", ")]
    return type(name, (ctypes.Structure,), {"_fields_": fields})
