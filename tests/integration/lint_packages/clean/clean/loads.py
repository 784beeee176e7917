import ctypes

LIBC = ctypes.CDLL("libc.so.6")
NAME = "libcuda.so.1"


def load() -> ctypes.CDLL:
    return ctypes.CDLL(NAME)
