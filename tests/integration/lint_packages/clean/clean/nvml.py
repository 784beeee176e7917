import pynvml
from pynvml import NVMLError

FAILED = pynvml.NVMLError_NotSupported


def ask() -> None:
    pynvml.nvmlInit()
