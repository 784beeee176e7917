"""NVIDIA's own readers of device code, ``cuobjdump`` and ``nvdisasm``, as pinned wheels."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from wheelfab.records import digest
from wheelfab.store import Store, default_root
from wheelfab.toolchain.pins import PinnedWheel
from wheelfab.toolchain.wheels import unpack_pinned

_TAG = "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64"
_WHEELS = (
    PinnedWheel(
        package="nvidia-cuda-cuobjdump",
        version="13.5.37",
        file=f"nvidia_cuda_cuobjdump-13.5.37-{_TAG}.whl",
        sha256="38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58",
        size=290354,
    ),
    PinnedWheel(
        package="nvidia-cuda-nvdisasm",
        version="13.5.37",
        file=f"nvidia_cuda_nvdisasm-13.5.37-{_TAG}.whl",
        sha256="d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
        size=5170654,
    ),
)
_BIN = "nvidia/cu13/bin"
_TIMEOUT = 300
_SECTION = re.compile(r"^//-+ \.text\.(\w+) +-+$", re.MULTILINE)


def cuda_binary(name: str) -> Path:
    """``cuobjdump`` or ``nvdisasm`` of CUDA 13.5, fetched now unless the store has them."""

    def make(content: Path) -> None:
        unpack_pinned(_WHEELS, content, what="CUDA's readers", where=Path(__file__).name)
        for program in (content / _BIN).iterdir():
            program.chmod(0o755)

    key = f"cuda-binaries-{digest(_WHEELS)[:16]}"
    return Store(default_root()).entry("tools", key, make, needs=100 << 20) / _BIN / name


def listed(file: Path) -> str:
    """What ``cuobjdump -lelf -lptx`` prints of the images in ``file``, or that there are none."""
    command = [str(cuda_binary("cuobjdump")), "-lelf", "-lptx", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    return done.stdout + done.stderr


def disassembled(cubin: bytes, folder: Path) -> str:
    """The machine code of a cubin in words, by ``nvdisasm``, through a file in ``folder``."""
    path = folder / "image.cubin"
    path.write_bytes(cubin)
    command = [str(cuda_binary("nvdisasm")), "-c", str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_TIMEOUT
    ).stdout


def functions(sass: str) -> dict[str, str]:
    """Kernel name to its part of what ``nvdisasm`` prints."""
    _, *parts = _SECTION.split(sass)
    return dict(zip(parts[::2], parts[1::2], strict=True))
