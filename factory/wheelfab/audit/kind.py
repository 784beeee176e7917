"""What kind of wheel it is, from the wheel itself."""

from __future__ import annotations

import re
from enum import StrEnum

from wheelfab.audit.facts import WheelFacts
from wheelfab.cubin import MACHINE
from wheelfab.elf import Elf
from wheelfab.fatbin import LOADED_SECTION, RELOCATABLE_SECTION

_CUDA = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|c10_cuda|torch_cuda)[-.\w]*\.so[.\d]*")


class WheelKind(StrEnum):
    """What a wheel is, for what it may need and hold."""

    PURE = "pure"  # no shared library
    CPU = "cpu"
    CUDA_DRIVER = "cuda-driver"  # device code that it hands to the driver itself
    CUDA_RUNTIME = "cuda-runtime"  # linked with the CUDA runtime, as torch's own extensions are


def kind_of(facts: WheelFacts) -> WheelKind:
    """Pure without a library; with device code or a CUDA library among its needs, a CUDA one."""
    if not facts.libraries:
        return WheelKind.PURE
    elves = [library.elf for library in facts.libraries if library.elf is not None]
    if any(_CUDA.fullmatch(name) for elf in elves for name in elf.needed):
        return WheelKind.CUDA_RUNTIME
    if any(_has_device_code(elf) for elf in elves):
        return WheelKind.CUDA_DRIVER
    return WheelKind.CPU


def _has_device_code(elf: Elf) -> bool:
    """Whether it is a cubin, or has a section of fatbins."""
    sections = (LOADED_SECTION, RELOCATABLE_SECTION)
    return elf.machine == MACHINE or any(elf.section(name) for name in sections)
