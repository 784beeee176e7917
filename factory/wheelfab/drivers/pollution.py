"""Older libraries of NVIDIA under the names that newer programs ask for.

What a system's toolkit leaves on ``LD_LIBRARY_PATH``: found before the library that came with a
package, it lacks what that has. As NVIDIA's do, each has one version node, named after itself.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from wheelfab.drivers.library import compile_object, link_library, write_file

_LINKER = (
    *("AddData", "AddFile", "Complete", "Create", "Destroy", "GetErrorLog", "GetErrorLogSize"),
    *("GetInfoLog", "GetInfoLogSize", "GetLinkedCubin", "GetLinkedCubinSize", "GetLinkedPtx"),
    "GetLinkedPtxSize",
)


class Pollution(StrEnum):
    """Which library is an older one."""

    CUDART = "libcudart"
    NVJITLINK = "libnvJitLink"


# What they export and answer: the runtime little and cudaErrorInsufficientDriver, the linker the
# functions of 12.0 (those of 12.1 end in _12_1) and NVJITLINK_ERROR_INTERNAL.
_FUNCTIONS = {
    Pollution.CUDART: (
        ("cudaDriverGetVersion", "cudaGetDeviceCount", "cudaGetLastError", "cudaRuntimeGetVersion"),
        35,
    ),
    Pollution.NVJITLINK: (tuple(f"__nvJitLink{name}_12_0" for name in _LINKER), 6),
}


def make_pollution(kind: Pollution, folder: Path) -> Path:
    """A folder below ``folder`` with an older ``libcudart.so.12`` or ``libnvJitLink.so.12``.

    Who was linked against a newer one and finds this one first fails to load. Raises
    ``ToolchainError`` without g++.
    """
    names, answer = _FUNCTIONS[kind]
    soname = f"{kind}.so.12"
    lines = [f'extern "C" __attribute__((visibility("default"))) int {name}();' for name in names]
    lines += [f"int {name}() {{ return {answer}; }}" for name in names]
    source = write_file(folder, f"{kind}.cpp", "\n".join([*lines, ""]).encode())
    script = f"{soname} {{ global: {' '.join(f'{name};' for name in names)} local: *; }};\n"
    built = compile_object(folder, source)
    return link_library(folder, soname, [built], script=script, flags=("-nostdlib",)).parent
