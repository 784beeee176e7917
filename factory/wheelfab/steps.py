"""The commands of a plan's actions, with ``{name}`` for folders that are known when they run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab.facts import AbiKind, RowKind
from wheelfab.model import Debug, Pin, Profile, Variant
from wheelfab.toolchain import torch_facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command. ``{name}`` in ``argv`` stands for a folder that is known when it runs."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()

    def shell(self, places: Mapping[str, str]) -> str:
        """The command as a person would type it in the project's root."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.env]
        return " ".join([*settings, *(shlex.quote(arg) for arg in fill(self.argv, places))])


def fill(argv: Sequence[str], places: Mapping[str, str]) -> tuple[str, ...]:
    """Put the folders of ``places`` where ``argv`` has ``{name}``; other braces stay."""
    pattern = re.compile(r"\{(" + "|".join(re.escape(name) for name in places) + r")\}")
    return tuple(pattern.sub(lambda match: places[match[1]], arg) for arg in argv)


def device_step(
    variant: Variant, include: Sequence[str], standard: str, file: str, archs: str
) -> Step:
    """The device compile of one file: its archs stand in ``TORCH_CUDA_ARCH_LIST`` only."""
    return Step(
        argv=(
            *("{python}", "-m", "wheelfab.toolchain.device"),
            *("--toolchain", str(variant.toolchain), "--cuda", str(variant.cuda)),
            *(arg for folder in include for arg in ("--include", folder)),
            *("--std", standard, "--out", f"{{out}}/{Path(file).stem}.fatbin", file),
        ),
        env=(("TORCH_CUDA_ARCH_LIST", archs),),
    )


def cmake_steps(folder: str, defines: Mapping[str, str]) -> tuple[Step, ...]:
    """Configure, compile and install one part with CMake and Ninja from PyPI.

    How many compile at once, Ninja asks of the build that runs it (``slots``).
    """
    settings = tuple(f"-D{name}={value}" for name, value in defines.items())
    configure = ("cmake", "-S", folder, "-B", "{work}/cmake", "-G", "Ninja")
    return (
        Step(
            argv=(
                *configure,
                "-DCMAKE_CXX_COMPILER={cxx}",
                "-DCMAKE_C_COMPILER={cc}",
                *settings,
            )
        ),
        Step(argv=("cmake", "--build", "{work}/cmake", "--verbose")),
        Step(argv=("cmake", "--install", "{work}/cmake", "--prefix", "{out}")),
    )


def profile_defines(profile: Profile, debug: Debug, places: Sequence[str]) -> dict[str, str]:
    """What tells CMake how to compile: a release by the project's own flags, a twin by the plan's.

    Debug information must name no folder of this machine, nor any of ``places`` (``torch``,
    ``cuda``) that are known when it runs: the bytes would depend on it.
    """
    if profile is Profile.RELEASE:
        return {"CMAKE_BUILD_TYPE": "Release"}
    folders = {
        "{root}/": "",
        "{work}/cmake": "build",
        **{f"{{{place}}}": place for place in places},
    }
    maps = (f'"-ffile-prefix-map={folder}={name}"' for folder, name in folders.items())
    flags = " ".join((*debug.flags, *maps))
    return {
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_C_FLAGS_DEBUG": flags,
        "CMAKE_CXX_FLAGS_DEBUG": flags,
    }


def torch_defines(pin: Pin) -> dict[str, str]:
    """What tells CMake which torch a binding is for."""
    target = {"WHEELFAB_TORCH_TARGET": str(pin.series)} if pin.kind is AbiKind.STABLE else {}
    return {
        "WHEELFAB_TORCH_ROOT": "{torch}",
        "WHEELFAB_TORCH_ABI": str(pin.kind),
        "WHEELFAB_CXX11_ABI": str(int(torch_facts(pin.headers).cxx11_abi)),
        **target,
    }


def wheel_steps(platform: str, glibc: object, kind: RowKind) -> tuple[Step, ...]:
    """scikit-build-core on the staged sources, then auditwheel as the gate that sets the tag.

    What torch brings is not copied into the wheel, and nor is the CUDA runtime that a row links.
    """
    machine = platform.partition("-")[2]
    brought = ["libtorch*.so", "libc10*.so"]
    if kind is RowKind.RUNTIME:
        brought.append("libcudart.so.*")
    policy = f"manylinux_{str(glibc).replace('.', '_')}_{machine}"
    return (
        Step(
            argv=(
                *("{python}", "-m", "build", "--wheel", "--no-isolation", "{work}/stage"),
                *("--outdir", "{work}/raw", "-Ccmake.define.WHEELFAB_PREBUILT={work}/prebuilt"),
            )
        ),
        Step(
            argv=(
                *("{python}", "-m", "auditwheel", "repair", "--only-plat", "--plat", policy),
                *(arg for pattern in brought for arg in ("--exclude", pattern)),
                *("--wheel-dir", "{out}", "{wheel}"),
            )
        ),
    )
