import ctypes
import ctypes.util
from ctypes import CDLL, cdll

NAME = "libcudart.so.12"

A = ctypes.CDLL("libcuda.so.1")  # bad: ctypes-driver
B = CDLL("/usr/lib/libnvidia-ml.so.1")  # bad: ctypes-driver
C = cdll.LoadLibrary(NAME)  # bad: ctypes-driver

for candidate in ("libcuda.so", "libcuda.so.1"):
    try:
        D = ctypes.CDLL(candidate)  # bad: ctypes-driver
        break
    except OSError:
        continue

A.cuInit(0)  # bad: ctypes-driver
