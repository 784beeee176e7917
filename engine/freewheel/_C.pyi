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

@type_check_only
class _InstructionSets(TypedDict):
    built: str
    usable: str

@type_check_only
class _Limits(TypedDict):
    dtypes: tuple[str, ...]
    head_sizes: tuple[int, ...]
    block_sizes: tuple[int, ...]

def build_record() -> str:
    """The text of ``_build.json`` beside this module. Raises ``OSError`` when it cannot be read."""

def driver_process() -> int:
    """The process in which ``_kernels.so`` opened the driver, 0 if it has not.

    A child that was forked afterwards gets its parent's. Raises ``ImportError`` when the library
    cannot be loaded.
    """

def instruction_sets() -> _InstructionSets:
    """CPU instruction sets of ``_kernels.so``, least first; ``usable`` on this machine.

    Raises ``ImportError`` when it cannot be loaded.
    """

def interpreter() -> int:
    """The number of the running interpreter: 0 is the main one."""

def kernels() -> _Kernels:
    """Facts of ``_kernels.so`` beside this module.

    Raises ``ImportError`` when it cannot be loaded, ``RuntimeError`` when ``FREEWHEEL_ISA`` is
    wrong.
    """

def limits() -> _Limits:
    """What the operations take."""

def version() -> _Version:
    """Facts of this module."""
