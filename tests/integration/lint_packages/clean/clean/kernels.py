import triton
import triton.language as tl


@triton.heuristics({"even": lambda args: True})
@triton.jit
def one(x, n: tl.constexpr):
    pass


@triton.autotune(configs=[triton.Config({})], key=["n"], do_bench=lambda fn, quantiles: 0)
@triton.jit
def two(x, n: tl.constexpr):
    pass
