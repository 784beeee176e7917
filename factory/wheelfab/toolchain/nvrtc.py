"""CUDA C++ to cubins and PTX by NVRTC: a library, no nvcc, no host compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path

from packaging.version import Version

from wheelfab.errors import BuildError, ToolchainError
from wheelfab.toolchain.compiler import Unit

_COMPILATION_FAILED = 6
_LONGEST_LOG = 4000  # characters


class Nvrtc:
    """One NVRTC library, loaded into this process; the driver is never touched.

    Same source and headers give the same bytes in every folder, provided that the source has a
    plain external symbol such as an ``extern "C"`` kernel; else 12.1 names internal variables
    after the process id.
    """

    name = "nvrtc"

    def __init__(self, library: Path) -> None:
        self.path = library
        try:
            self.library = ctypes.CDLL(str(library))
        except OSError as error:
            raise ToolchainError(f"cannot be loaded: {error}", where=str(library)) from error
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> Version:
        """The CUDA release that the library says it is of."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "version")
        return Version(f"{major.value}.{minor.value}")

    def archs(self) -> frozenset[str]:
        """The arch numbers that the library compiles for; it lists none with a suffix."""
        count = ctypes.c_int()
        self._check(self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "archs")
        numbers = (ctypes.c_int * count.value)()
        self._check(self.library.nvrtcGetSupportedArchs(numbers), "archs")
        return frozenset(str(number) for number in numbers)

    def compile(self, unit: Unit, target: str) -> tuple[bytes, str]:
        """A cubin for ``sm_XX`` or PTX for ``compute_XX``, and the warnings."""
        program = ctypes.c_void_p()
        # The file's name alone: a path would change __FILE__, and with it the bytes, by folder.
        name, source = unit.source.name.encode(), unit.source.read_bytes()
        created = self.library.nvrtcCreateProgram(
            ctypes.byref(program), source, name, 0, None, None
        )
        self._check(created, unit.source.name)
        try:
            options = [f"--gpu-architecture={target}", f"--std={unit.standard}"]
            options += [f"--include-path={folder}" for folder in unit.folders]
            array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            result = self.library.nvrtcCompileProgram(program, len(options), array)
            log = self._text(program, "ProgramLog")
            if result == _COMPILATION_FAILED:
                raise BuildError(
                    f"does not compile for {target}:\n{log[:_LONGEST_LOG]}", where=str(unit.source)
                )
            self._check(result, f"{unit.source.name} for {target}")
            image = self._fetch(program, "CUBIN" if target.startswith("sm_") else "PTX")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return image, log

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._fetch(program, what).rstrip(b"\0").decode(errors="replace").strip()

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        """Ask for the size of ``what`` (``CUBIN``, ``PTX``, ``ProgramLog``), then for its bytes."""
        size = ctypes.c_size_t()
        asked = getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        self._check(asked, f"size of {what}")
        buffer = ctypes.create_string_buffer(max(1, size.value))
        self._check(getattr(self.library, f"nvrtcGet{what}")(program, buffer), what)
        return buffer.raw[: size.value]

    def _check(self, result: int, what: str) -> None:
        if result:
            reason = self.library.nvrtcGetErrorString(result).decode(errors="replace")
            raise ToolchainError(f"NVRTC: {what}: {reason}", where=str(self.path))
