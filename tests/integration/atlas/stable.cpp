// A binding for LibTorch's stable ABI: one operation for CPU and CUDA, which doubles a tensor.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {
using torch::stable::Tensor;

Tensor Twice(const Tensor& x) {
  Tensor y = torch::stable::empty_like(x);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}
}  // namespace

STABLE_TORCH_LIBRARY(atlas, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(atlas, CPU, m) { m.impl("twice", TORCH_BOX(&Twice)); }
STABLE_TORCH_LIBRARY_IMPL(atlas, CUDA, m) { m.impl("twice", TORCH_BOX(&Twice)); }
