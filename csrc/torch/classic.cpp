// The binding for one torch series, in its C++ ABI. Single headers: torch/extension.h costs four
// times the compile time.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
#include <omp.h>
#include <torch/library.h>

#include <algorithm>

#include "torch/adapter.h"
#include "torch/schemas.h"

#ifndef _OPENMP
#error "compile with -fopenmp: without it everything silently runs on one thread"
#endif

// Compiled with -fopenmp, linked without: at run time these are torch's own copy's, so that there
// is one OpenMP and one pool in the process. Weak, so that the link needs no second one.
__asm__(".weak GOMP_parallel");
__asm__(".weak omp_get_num_threads");
__asm__(".weak omp_get_thread_num");

namespace fw {
namespace {

Dtype DtypeOf(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return Dtype::kFloat32;
    case c10::ScalarType::Half:
      return Dtype::kFloat16;
    case c10::ScalarType::BFloat16:
      return Dtype::kBFloat16;
    case c10::ScalarType::Int:
      return Dtype::kInt32;
    case c10::ScalarType::Long:
      return Dtype::kInt64;
    default:
      return Dtype::kOther;
  }
}

struct Classic {
  using Tensor = at::Tensor;

  struct Guard {
    explicit Guard(int32_t device)
        : guard(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device))) {}
    c10::DeviceGuard guard;
  };

  struct Allocation {
    explicit Allocation(int32_t ordinal) : device(ordinal) {}
    int32_t device;
    at::Tensor memory;
  };

  static fw::Tensor View(const at::Tensor& tensor) {
    fw::Tensor view;
    view.data = tensor.data_ptr();
    view.dim = tensor.dim();
    view.sizes = tensor.sizes().data();
    view.strides = tensor.strides().data();
    view.dtype = DtypeOf(tensor.scalar_type());
    view.dtype_name = c10::toString(tensor.scalar_type());
    view.cuda = tensor.is_cuda();
    view.device = view.cuda ? tensor.get_device() : -1;
    return view;
  }

  static bool IsMeta(const at::Tensor& tensor) { return tensor.is_meta(); }

  // at::parallel_for over a body that throws nothing: the template itself keeps an exception_ptr,
  // whose inline functions ask for a libstdc++ newer than glibc 2.28's time.
  static void ParallelFor(int64_t begin, int64_t end, int64_t grain, FwBody body, void* context) {
    const int64_t pieces = (end - begin + grain - 1) / grain;
    if (pieces <= 1 || at::get_num_threads() == 1 || at::in_parallel_region()) {
      return body(begin, end, context);
    }
#pragma omp parallel  // always the whole pool: another number of threads would rebuild it
    {
      const int64_t threads = std::min<int64_t>(pieces, omp_get_num_threads());
      const int64_t share = (end - begin + threads - 1) / threads;
      const int64_t first = begin + omp_get_thread_num() * share;
      if (first < end) body(first, std::min(end, first + share), context);
    }
  }

  static float* Scratch(void* context, int64_t count) {
    Allocation& allocation = *static_cast<Allocation*>(context);
    const c10::Device device =
        allocation.device < 0
            ? c10::Device(c10::DeviceType::CPU)
            : c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(allocation.device));
    allocation.memory = at::empty({count}, c10::TensorOptions(device).dtype(at::kFloat));
    return static_cast<float*>(allocation.memory.data_ptr());
  }
};

}  // namespace
}  // namespace fw

TORCH_LIBRARY(freewheel, m) {
#define FREEWHEEL_DEF(name, schema) m.def(schema);
  FREEWHEEL_OPERATORS(FREEWHEEL_DEF)
  FREEWHEEL_FUNCTIONS(FREEWHEEL_DEF)
#undef FREEWHEEL_DEF
}

#define FREEWHEEL_RUN(name, schema) m.impl(#name, &fw::Adapter<fw::Classic, &fw::name>::Run);
#define FREEWHEEL_META(name, schema) m.impl(#name, &fw::Adapter<fw::Classic, &fw::name>::Meta);
#define FREEWHEEL_CALL(name, schema) m.impl(#name, &fw::name);

TORCH_LIBRARY_IMPL(freewheel, CPU,
                   m){FREEWHEEL_OPERATORS(FREEWHEEL_RUN)} TORCH_LIBRARY_IMPL(freewheel, CUDA, m){
    FREEWHEEL_OPERATORS(FREEWHEEL_RUN)} TORCH_LIBRARY_IMPL(freewheel, Meta, m){
    FREEWHEEL_OPERATORS(FREEWHEEL_META)} TORCH_LIBRARY_IMPL(freewheel, CompositeExplicitAutograd,
                                                            m) {
  FREEWHEEL_FUNCTIONS(FREEWHEEL_CALL)
}
