"""Mangled names as people write them, by the C++ runtime's own demangler where there is one."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_LONGEST = 2000  # a name comes out of someone's file, and the demangler recurses


@cache
def _runtime() -> tuple[Any, Any] | None:
    """``__cxa_demangle`` of the C++ runtime, and what frees its answers."""
    try:
        runtime, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
        convert, free = runtime["__cxa_demangle"], libc["free"]
    except (OSError, AttributeError):
        return None
    convert.restype = ctypes.c_void_p
    convert.argtypes = (ctypes.c_char_p, *(ctypes.c_void_p,) * 3)
    free.argtypes = (ctypes.c_void_p,)
    return convert, free


def demangle(name: str) -> str:
    """``at::add(at::Tensor const&, …)``; the name itself where that is no C++ or too long."""
    found = _runtime() if name.startswith("_Z") and len(name) <= _LONGEST else None
    if found is None:
        return name
    convert, free = found
    text = convert(name.encode(), None, None, None)
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        free(text)
