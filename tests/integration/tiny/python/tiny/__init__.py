"""Loads a library of two parts and asks it for its answer."""

import ctypes
from pathlib import Path


def answer() -> int:
    """What the compiled part says."""
    library = ctypes.CDLL(str(Path(__file__).parent / "_kernels.so"))
    return int(library.tiny_answer())
