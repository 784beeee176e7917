// A binding in torch's own C++ ABI: one operation, which doubles a tensor on the CPU. Kernels of
// other devices triple it, so that one that is taken for the CPU's is seen.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <torch/library.h>

namespace {
at::Tensor Twice(const at::Tensor& x) { return at::add(x, x); }
#ifndef CPU_ONLY
at::Tensor Thrice(const at::Tensor& x) { return at::add(x, x, 2); }
#endif
}  // namespace

TORCH_LIBRARY(atlas, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(atlas, CPU, m) { m.impl("twice", &Twice); }
#ifndef CPU_ONLY
TORCH_LIBRARY_IMPL(atlas, CUDA, m) { m.impl("twice", &Thrice); }
#endif
