import triton
import triton.language as tl
from triton import autotune
from triton.runtime import driver

TARGET = triton.runtime.driver.active.get_current_target()  # bad: triton-driver
UTILS = driver.active  # bad: triton-driver
MS = triton.testing.do_bench(lambda: None)  # bad: triton-driver


@triton.autotune(configs=[], key=["n"])  # bad: triton-autotune
@triton.jit
def one(x, n: tl.constexpr):
    pass


@autotune(configs=[], key=["n"])  # bad: triton-autotune
@triton.jit
def two(x, n: tl.constexpr):
    pass
