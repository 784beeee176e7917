import cupy
from numba import cuda

KERNEL = cupy.RawKernel("", "k")
KIND = cupy.float32


@cuda.jit
def kernel(x):
    pass
