"""Which symbols are torch's, told by their names alone."""

from __future__ import annotations

import re

# A component of a mangled name: its length, then the name. 12attribute is no 2at.
_NAMESPACES = re.compile(r"_Z.*?(?<![0-9])(?:2at|3c10|4c10d|5torch|6caffe2)(?![a-km-oq-z_])")
_SHIM = re.compile(r"aoti_torch_\w+|torch_\w+")
_PYTHON = re.compile(r"(?:_Z\w*?\d)?THP\w+")


def is_shim(name: str) -> bool:
    """Whether ``name`` is a function of the C shim that the stable ABI rests on."""
    return _SHIM.fullmatch(name) is not None


def is_torch(name: str) -> bool:
    """Whether ``name`` lies in torch's namespaces, takes their types, or is its C interface."""
    return (
        _NAMESPACES.match(name) is not None or is_shim(name) or _PYTHON.fullmatch(name) is not None
    )
