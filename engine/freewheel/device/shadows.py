"""What LD_LIBRARY_PATH puts in front of the libraries that torch brings or needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from freewheel.device.files import is_default_folder, search_path

# The names that torch's libraries ask for, of CUDA 11 to 13. Asked for one by one: listing a folder
# of a distribution takes longer than the whole file layer may.
_CUDA = (
    "libcudart.so.11.0",
    "libcudart.so.12",
    "libcudart.so.13",
    "libnvJitLink.so.12",
    "libnvJitLink.so.13",
    "libcublas.so.11",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
    "libcudnn.so.8",
    "libcudnn.so.9",
    "libcusparse.so.12",
    "libcusolver.so.11",
    "libcusolver.so.12",
    "libcufft.so.11",
    "libcufft.so.12",
    "libnvrtc.so.11.2",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
    "libnccl.so.2",
)
_TORCH = ("libc10.so", "libtorch_cpu.so", "libtorch.so")
_SYSTEM = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1")


@dataclass(frozen=True)
class Shadow:
    """The libraries of one folder that win over those which torch would find by itself."""

    folder: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"LD_LIBRARY_PATH puts {self.folder} first for {', '.join(self.names)}"


def shadows(environment: Mapping[str, str], *, root: str = "/") -> tuple[Shadow, ...]:
    """Each folder with what it brings, in the loader's order; never raises.

    Of a name that several hold only the first counts. Costs nothing where the variable is not set.
    """
    taken: set[str] = set()
    found: list[Shadow] = []
    for folder in search_path(environment):
        here = os.path.join(root, folder.lstrip("/"))
        wanted = (*_CUDA, *_TORCH, *(() if is_default_folder(folder) else _SYSTEM))
        if not os.path.isdir(here):
            continue
        names = [n for n in wanted if n not in taken and os.path.isfile(f"{here}/{n}")]
        taken.update(names)
        if names:
            found.append(Shadow(folder, tuple(names)))
    return tuple(found)
