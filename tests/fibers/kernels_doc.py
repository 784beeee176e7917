"""Writes docs/kernels.md from the fatbins of one CUDA release and from runs in the emulation.

``PYTHONPATH=factory python -m tests.fibers.kernels_doc FATBIN... [--out docs/kernels.md]``
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .accuracy import measure
from .build import build
from .emulation import Emulation
from .kernel_source import ALL_KERNELS
from .kernels_page import PAGE, read_images, render


def main() -> None:
    """Measure every kernel and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fatbins", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        emulation = Emulation(build(Path(folder)))
        measurements = [measure(emulation, kernel) for kernel in ALL_KERNELS]
    arguments.out.write_text(render(read_images(arguments.fatbins), measurements))


if __name__ == "__main__":
    main()
