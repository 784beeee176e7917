"""Packs cubins and PTX into one fatbin, through NVIDIA's nvFatbin library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab.errors import ToolchainError

# Uncompressed: the wheel deflates better than LZ4 does, and our own loader reads it as it is.
_OPTIONS = (b"-64", b"-cuda", b"-host=linux", b"-compress=false")


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """Code for one architecture. ``arch`` is number and suffix, ``90a``; ``ptx`` or a cubin."""

    arch: str
    ptx: bool
    code: bytes

    @property
    def target(self) -> str:
        """As the compilers name it: ``sm_90a`` or ``compute_90a``."""
        return f"compute_{self.arch}" if self.ptx else f"sm_{self.arch}"


def pack(library: Path, images: Sequence[Image], name: str) -> bytes:
    """One fatbin of all ``images``; ``name`` is what cuobjdump calls them. Same input, same bytes.

    Raises ``ToolchainError`` when nvFatbin refuses an image.
    """
    packer = _Packer(library)
    try:
        for image in images:
            packer.add(image, name.encode())
        return packer.finish()
    finally:
        packer.close()


class _Packer:
    """One handle of nvFatbin."""

    def __init__(self, library: Path) -> None:
        self.path = library
        try:
            self.library = ctypes.CDLL(str(library))
        except OSError as error:
            raise ToolchainError(f"cannot be loaded: {error}", where=str(library)) from error
        self.library.nvFatbinGetErrorString.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        options = (ctypes.c_char_p * len(_OPTIONS))(*_OPTIONS)
        count = ctypes.c_size_t(len(_OPTIONS))
        self._check(self.library.nvFatbinCreate(ctypes.byref(self.handle), options, count), "")

    def add(self, image: Image, name: bytes) -> None:
        arch = image.arch.encode()
        if image.ptx:
            code = image.code.rstrip(b"\0") + b"\0"  # drivers read PTX up to its NUL
            size = ctypes.c_size_t(len(code))
            result = self.library.nvFatbinAddPTX(self.handle, code, size, arch, name, b"")
        else:
            size = ctypes.c_size_t(len(image.code))
            result = self.library.nvFatbinAddCubin(self.handle, image.code, size, arch, name)
        self._check(result, image.target)

    def finish(self) -> bytes:
        size = ctypes.c_size_t()
        self._check(self.library.nvFatbinSize(self.handle, ctypes.byref(size)), "size")
        packed = ctypes.create_string_buffer(size.value)
        self._check(self.library.nvFatbinGet(self.handle, packed), "get")
        return packed.raw

    def close(self) -> None:
        if self.handle:
            self.library.nvFatbinDestroy(ctypes.byref(self.handle))

    def _check(self, result: int, what: str) -> None:
        if result:
            reason = self.library.nvFatbinGetErrorString(result).decode(errors="replace")
            raise ToolchainError(f"nvFatbin: {what}: {reason}", where=str(self.path))
