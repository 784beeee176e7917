import cupy as cp
import pycuda.driver
from numba import cuda

ZEROS = cp.zeros(3)  # bad: cuda-arrays
READY = cuda.is_available()  # bad: cuda-arrays
cuda.select_device(0)  # bad: cuda-arrays
pycuda.driver.init()  # bad: cuda-arrays
