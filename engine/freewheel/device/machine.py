"""The machine that a library is for, by the first bytes of its file."""

from __future__ import annotations

import os

_HEADER = 20  # bytes, up to e_machine of an ELF header
_LITTLE = 1  # ELFDATA2LSB
# By EI_CLASS (1: 32 bit, 2: 64 bit) and e_machine, as uname names them.
_NAMES = {
    (1, 3): "i386",
    (1, 40): "arm",
    (1, 62): "x32",
    (2, 21): "ppc64le",
    (2, 62): "x86_64",
    (2, 183): "aarch64",
    (2, 243): "riscv64",
}


def foreign_machine(path: str) -> str:
    """The machine that the library is for, where that is not this one; else ``""``.

    Also ``""`` for what is no ELF file or cannot be read, and on a machine that is not known here.
    """
    here = os.uname().machine
    there = _machine(path)
    return there if here in _NAMES.values() and there != here else ""


def _machine(path: str) -> str:
    header = _first_bytes(path)
    if len(header) < _HEADER or not header.startswith(b"\x7fELF"):
        return ""
    number = int.from_bytes(header[18:20], "little" if header[5] == _LITTLE else "big")
    return _NAMES.get((header[4], number), f"ELF machine {number}")


def _first_bytes(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _HEADER)
    except OSError:
        return b""
    finally:
        os.close(file)
