# ruff: noqa: PYI021, N999 - the stub documents what C cannot; the name is the contract
"""What this build of freewheel is. Imports no torch and touches no driver."""

from typing import TypedDict, type_check_only

@type_check_only
class _Version(TypedDict):
    interface_version: int
    limited_api: str
    compiler: str

@type_check_only
class _Kernels(TypedDict):
    interface_version: int
    archs: str
    cpu_isa: str

def build_record() -> str:
    """The text of ``_build.json`` beside this module. Raises ``OSError`` when it cannot be read."""

def kernels() -> _Kernels:
    """Facts of ``_kernels.so`` beside this module.

    Raises ``ImportError`` when it cannot be loaded, ``RuntimeError`` when ``FREEWHEEL_ISA`` is
    wrong.
    """

def version() -> _Version:
    """Facts of this module."""
