"""Compilers and torch releases: what the plan says of them before anything is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from wheelfab import facts
from wheelfab.errors import ToolchainError
from wheelfab.records import file_digest
from wheelfab.toolchain.host import host_compiler
from wheelfab.toolchain.pins import pinned

_CODE = ("device.py", "nvcc.py", "nvrtc.py", "packer.py")
NVRTC_ROUTE, NVCC_ROUTE = "pypi-nvrtc", "pypi-nvcc"


def toolchain_identity(route: str, cuda: Version) -> Mapping[str, object]:
    """What decides a device toolchain's output: its wheels, our own code, nvcc's host compiler.

    Raises ``ToolchainError`` when no wheels are pinned for it.
    """
    pins = pinned(route, cuda)
    folder = Path(__file__).parent
    return {
        "route": pins.route,
        "cuda": str(cuda),
        "wheels": {f"{wheel.package} {wheel.version}": wheel.sha256 for wheel in pins.wheels},
        "code": {name: file_digest(folder / name) for name in _CODE},
        "host": host_compiler() if pins.route == NVCC_ROUTE else None,
    }


def torch_facts(release: Version) -> facts.TorchRelease:
    """What is known of a torch release; raises ``ToolchainError`` when nothing is."""
    known = facts.torch_release(release)
    if known is None:
        names = ", ".join(str(item.version) for item in facts.torch_releases())
        raise ToolchainError(
            f"nothing is known of torch {release}",
            where="facts/torch.toml",
            next_step=f"add it there; known are {names}",
        )
    return known
