"""Libraries that stand where NVIDIA's driver would: ``libcuda.so.1`` and ``libnvidia-ml.so.1``."""

from __future__ import annotations

import difflib
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from pathlib import Path

from wheelfab.drivers.entries import entry_points
from wheelfab.drivers.library import HERE, INCLUDE, compile_object, link_library, write_file
from wheelfab.errors import UsageError

_NAME = "libcuda.so.1"
_UNVERSIONED = "libcuda.so"
_MANAGEMENT = "libnvidia-ml.so.1"
_MISSING = ("cuDeviceGetCount",)
# Nothing of libstdc++ and libgcc is shared or asked for; dl and pthread functions lie in libraries
# of their own before glibc 2.34, which fake/compat.cpp and fake/dl.h rely on.
_ALONE = ("-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections")
_OLD_GLIBC = ("-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libpthread.so.0")
_ELF_HEADER = 64  # bytes
_PROGRAM_HEADER = 56
_MACHINE = slice(18, 20)  # e_machine
_X86_64, _AARCH64 = 62, 183
_TEXT = b"this is no library\n"


class DriverKind(StrEnum):
    """What a driver library may be. The fake's behaviour comes from the environment besides."""

    FAKE = "fake"  # a driver with devices
    STUB = "stub"  # a toolkit's, for linking: every call returns 34
    UNVERSIONED = "unversioned"  # the fake, but there is no file libcuda.so.1, only libcuda.so
    GARBAGE = "garbage"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    WRONG_MACHINE = "wrong-machine"
    MISSING_SYMBOL = "missing-symbol"  # the fake without an entry point


_EXPORTING = (
    DriverKind.FAKE,
    DriverKind.STUB,
    DriverKind.UNVERSIONED,
    DriverKind.MISSING_SYMBOL,
)


def make_driver(kind: DriverKind, folder: Path, *, hide: Sequence[str] = ()) -> Path:
    """A folder below ``folder`` with a driver library of ``kind``, for ``LD_LIBRARY_PATH``.

    It lacks the exports named in ``hide``; with ``MISSING_SYMBOL`` that is ``cuDeviceGetCount``
    unless given. It is compiled once, whoever asks at the same time, and readable by all.

    Raises ``ToolchainError`` without g++, ``UsageError`` when ``hide`` names no entry point.
    """
    hidden = tuple(sorted(hide)) or (_MISSING if kind is DriverKind.MISSING_SYMBOL else ())
    _check_hidden(kind, hidden)
    if kind in (DriverKind.FAKE, DriverKind.MISSING_SYMBOL):
        library = _fake(folder, _NAME, hidden)
    elif kind is DriverKind.UNVERSIONED:
        library = _fake(folder, _UNVERSIONED, hidden)
    elif kind is DriverKind.STUB:
        library = _stub(folder, hidden)
    else:
        library = write_file(folder, _NAME, _content(kind, folder))
    return library.parent


def make_management(folder: Path) -> Path:
    """A folder below ``folder`` with a fake ``libnvidia-ml.so.1`` for the fake's devices.

    Raises ``ToolchainError`` without g++.
    """
    built = compile_object(folder, HERE / "nvml" / "fakenvml.cpp")
    script = "{ global: nvml*; local: *; };\n"
    return link_library(folder, _MANAGEMENT, [built], script=script, flags=_ALONE).parent


def _check_hidden(kind: DriverKind, hidden: Sequence[str]) -> None:
    if hidden and kind not in _EXPORTING:
        raise UsageError(f"a driver that is {kind} has no exports to hide")
    for name in hidden:
        if name not in entry_points():
            close = difflib.get_close_matches(name, entry_points(), 1)
            step = f"did you mean {close[0]}?" if close else "see entry_points()"
            raise UsageError(f"no entry point {name!r}", next_step=step)


def _fake(folder: Path, name: str, hidden: Sequence[str]) -> Path:
    headers = (*(HERE / "fake").glob("*.h"), *INCLUDE.glob("*.h"))
    sources = sorted((HERE / "fake").glob("*.cpp"))
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(partial(compile_object, folder, headers=headers), sources))
    script = _exports(hidden, "fakecuda_*")
    flags = (*_ALONE, *_OLD_GLIBC)
    return link_library(folder, name, objects, script=script, flags=flags, soname=_NAME)


def _stub(folder: Path, hidden: Sequence[str]) -> Path:
    built = compile_object(folder, HERE / "stub" / "stub.cpp", headers=INCLUDE.glob("*.h"))
    return link_library(folder, _NAME, [built], script=_exports(hidden), flags=("-nostdlib",))


def _exports(hidden: Sequence[str], *more: str) -> str:
    names = [name for name in entry_points() if name not in hidden]
    return f"{{ global: {' '.join(f'{name};' for name in (*names, *more))} local: *; }};\n"


def _content(kind: DriverKind, folder: Path) -> bytes:
    """What is in a file that is no library; some of it is the fake's."""
    if kind is DriverKind.GARBAGE:
        return _TEXT * 99
    if kind is DriverKind.EMPTY:
        return b""
    whole = _fake(folder, _NAME, ()).read_bytes()
    if kind is DriverKind.TRUNCATED:
        # Further on, the loader maps what is not there, and who loads it dies of a bus error.
        return whole[: _ELF_HEADER + _PROGRAM_HEADER]
    other = _X86_64 if platform.machine() != "x86_64" else _AARCH64
    return whole[: _MACHINE.start] + other.to_bytes(2, "little") + whole[_MACHINE.stop :]
