"""Which symbols are torch's, told by their names alone."""

from __future__ import annotations

import re

# A component of a mangled name: its length, the name, then another component, a type or an
# operator. 12attribute is no 2at, and neither is the end of 10foo2atomic.
_NAMESPACES = re.compile(
    r"_Z.*?(?<![0-9])(?:2at|3c10|4c10d|5torch|6caffe2)(?=[0-9A-Z]|[a-z][a-zA-Z][A-Z])"
)
_SHIM = re.compile(r"aoti_torch_\w+|torch_\w+")
_PYTHON = re.compile(r"(?:_Z\w*?\d)?THP\w+")
# What no other library can name: anonymous namespaces, closures, nvcc's wrappers of closures.
_NAMELESS = re.compile(r"_GLOBAL__N_|__nv_\w|Ul(?:v|\w*?)E\d*_")


def is_shim(name: str) -> bool:
    """Whether ``name`` is a function of the C shim that the stable ABI rests on."""
    return _SHIM.fullmatch(name) is not None


def is_torch(name: str) -> bool:
    """Whether ``name`` lies in torch's namespaces, takes their types, or is its C interface.

    Names with a closure or an anonymous namespace in them are not: whoever uses such a function has
    compiled it himself.
    """
    if is_shim(name) or _PYTHON.fullmatch(name):
        return True
    return _NAMESPACES.match(name) is not None and _NAMELESS.search(name) is None
