"""The libraries of this folder that are freewheel's own, on top of ``wheelfab.drivers``.

They need g++ and, with ``factory`` on the path, nothing outside the standard library, so that any
Python from 3.11 on can use them: that of the tests, and a loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfab.drivers.library import compile_object, link_library, write_file

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
_DL = ("-Wl,--no-as-needed", "-l:libdl.so.2")  # where the dlopen of glibc 2.28 lives
_HOST = ("images/fatbin.cpp", "driver/results.cpp", "driver/driver.cpp", "driver/device.cpp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Device images to embed: the container of each ``.cu``, by its stem."""

    containers: Mapping[str, bytes]

    def build(self, folder: Path) -> Path:
        """The object that defines ``fw_images`` and ``fw_image_count``, as the build makes it."""
        lines = ['.section .note.GNU-stack,"",@progbits', '.section .nv_fatbin,"a",@progbits']
        for name, container in self.containers.items():
            path = write_file(folder, f"{name}.fatbin", container)
            lines += [".balign 8", f"{name}_begin:", f'.incbin "{path}"', f"{name}_end:"]
        lines += ['.section .rodata.names,"a",@progbits']
        lines += [f'{name}_name: .asciz "{name}"' for name in self.containers]
        lines += ['.section .data.rel.ro,"aw",@progbits', ".balign 8"]
        lines += [".globl fw_images, fw_image_count", ".hidden fw_images, fw_image_count"]
        lines += ["fw_images:"]
        lines += [f".quad {name}_name, {name}_begin, {name}_end" for name in self.containers]
        lines += [f"fw_image_count: .int {len(self.containers)}", ""]
        return compile_object(folder, write_file(folder, "images.s", "\n".join(lines).encode()))


def build_kernels(folder: Path, images: Images) -> Path:
    """A library with the CUDA half of ``_kernels`` over ``images``, and ``harness.cpp`` beside it.

    It exports ``freewheel_kernels`` as ``_kernels`` does, and the functions of ``harness.cpp``.
    """
    parts = ("abi", "compat", "images", "driver", "cuda", "kernels")
    headers = [path for part in parts for path in sorted((CSRC / part).glob("*.h"))]
    sources = [*(CSRC / name for name in _HOST), CSRC / "cuda" / "ops.cpp", HERE / "harness.cpp"]
    flags = (f"-I{CSRC}",)
    objects = [compile_object(folder, source, headers=headers, flags=flags) for source in sources]
    return link_library(folder, "libharness.so", [*objects, images.build(folder)], flags=_DL)


def build_host_cuda(folder: Path, torch: Path) -> Path:
    """A ``libtorch_cuda.so`` that gives the CPU build of torch in ``torch`` a CUDA device.

    ``torch`` is the package's folder, with ``include`` and ``lib``. The library has no run path: it
    is for any copy of that torch, whose own libraries are loaded before it (``host_cuda.py``).
    """
    version = (torch / "version.py").read_text(encoding="utf-8")
    include = torch / "include"
    flags = (
        f"-isystem{include}",
        f"-isystem{include / 'torch' / 'csrc' / 'api' / 'include'}",
        "-Wno-error=deprecated-declarations",
    )
    built = compile_object(folder, HERE / "host_cuda.cpp", flags=flags, salt=version)
    libraries = (f"-L{torch / 'lib'}", "-l:libtorch_cpu.so", "-l:libc10.so")
    return link_library(folder, "libtorch_cuda.so", [built], flags=libraries)
