"""A lock that fits the matrix of ``matrixmaker`` and the compiler of ``test_plan``."""

from __future__ import annotations

from packaging.version import Version

from wheelfab.inputs import locked_compiler
from wheelfab.locked import Locked, LockedImage, LockedToolchain, LockedTorch, LockedWheel
from wheelfab.resolve import TORCH_INDEX
from wheelfab.toolchain.host import HostCompiler
from wheelfab.toolchain.pins import pinned
from wheelfab.toolchain.tools import ROOTS


def tool(package: str, version: str = "1.0") -> LockedWheel:
    """A tool's wheel, its digest made of the first letter's number."""
    sha256 = f"{ord(package[0]):02x}" * 32
    file = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    return LockedWheel(package=package, version=version, file=file, sha256=sha256, size=1)


def make_locked(compiler: HostCompiler) -> Locked:
    """Both toolchains, both torch releases, all tools, one compiler, one image."""
    return Locked(
        schema=1,
        toolchain=tuple(
            LockedToolchain(
                route="pypi-nvrtc",
                cuda=cuda,
                wheel=tuple(
                    LockedWheel(
                        package=item.package,
                        version=item.version,
                        file=item.file,
                        sha256=item.sha256,
                        size=item.size,
                    )
                    for item in pinned("pypi-nvrtc", Version(cuda)).wheels
                ),
            )
            for cuda in ("11.8", "12.1")
        ),
        torch=tuple(
            LockedTorch(
                release=release,
                index=TORCH_INDEX,
                python="3.11",
                version=release,
                file=f"torch-{release}-cp311-cp311-manylinux1_x86_64.whl",
                sha256=digit * 64,
                source="index https://there",
            )
            for release, digit in (("2.4.1", "a"), ("2.13.0", "b"))
        ),
        requirement=tuple(tool(name) for name in ROOTS),
        container=(tool("pydantic"),),
        compiler=(locked_compiler(compiler),),
        image=(LockedImage(base="debian-12", digest="sha256:" + "c" * 64),),
    )
