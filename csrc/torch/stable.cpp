// The binding for LibTorch's stable ABI: built with the headers of one release, for the release
// named by TORCH_TARGET_VERSION and all later ones. Only C functions of torch are referenced.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

#include "torch/adapter.h"
#include "torch/schemas.h"

namespace fw {
namespace {

using torch::headeronly::DeviceType;
using torch::headeronly::ScalarType;

Dtype DtypeOf(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return Dtype::kFloat32;
    case ScalarType::Half:
      return Dtype::kFloat16;
    case ScalarType::BFloat16:
      return Dtype::kBFloat16;
    case ScalarType::Int:
      return Dtype::kInt32;
    case ScalarType::Long:
      return Dtype::kInt64;
    default:
      return Dtype::kOther;
  }
}

struct Stable {
  using Tensor = torch::stable::Tensor;
  using Guard = torch::stable::accelerator::DeviceGuard;

  struct Allocation {
    explicit Allocation(int32_t ordinal) : device(ordinal) {}
    int32_t device;
    std::optional<torch::stable::Tensor> memory;
  };

  static fw::Tensor View(const torch::stable::Tensor& tensor) {
    fw::Tensor view;
    view.data = tensor.data_ptr();
    view.dim = tensor.dim();
    view.sizes = tensor.sizes().data();
    view.strides = tensor.strides().data();
    view.dtype = DtypeOf(tensor.scalar_type());
    view.dtype_name = torch::headeronly::toString(tensor.scalar_type());
    view.cuda = tensor.is_cuda();
    view.device = view.cuda ? tensor.get_device_index() : -1;
    return view;
  }

  static bool IsMeta(const torch::stable::Tensor& tensor) {
    int32_t type = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
    return type == aoti_torch_device_type_meta();
  }

  static void ParallelFor(int64_t begin, int64_t end, int64_t grain, FwBody body, void* context) {
    torch::stable::parallel_for(begin, end, grain,
                                [=](int64_t first, int64_t last) { body(first, last, context); });
  }

  static float* Scratch(void* context, int64_t count) {
    Allocation& allocation = *static_cast<Allocation*>(context);
    const torch::stable::Device device =
        allocation.device < 0 ? torch::stable::Device(DeviceType::CPU)
                              : torch::stable::Device(DeviceType::CUDA, allocation.device);
    allocation.memory = torch::stable::empty({&count, 1}, ScalarType::Float, std::nullopt, device);
    return static_cast<float*>(allocation.memory->data_ptr());
  }
};

}  // namespace
}  // namespace fw

STABLE_TORCH_LIBRARY(freewheel, m) {
#define FREEWHEEL_DEF(name, schema) m.def(schema);
  FREEWHEEL_OPERATORS(FREEWHEEL_DEF)
  FREEWHEEL_FUNCTIONS(FREEWHEEL_DEF)
#undef FREEWHEEL_DEF
}

#define FREEWHEEL_BOX(...) TORCH_BOX((__VA_ARGS__))
#define FREEWHEEL_RUN(name, schema) \
  m.impl(#name, FREEWHEEL_BOX(&fw::Adapter<fw::Stable, &fw::name>::Run));
#define FREEWHEEL_META(name, schema) \
  m.impl(#name, FREEWHEEL_BOX(&fw::Adapter<fw::Stable, &fw::name>::Meta));
#define FREEWHEEL_CALL(name, schema) m.impl(#name, TORCH_BOX(&fw::name));

STABLE_TORCH_LIBRARY_IMPL(freewheel, CPU, m){
    FREEWHEEL_OPERATORS(FREEWHEEL_RUN)} STABLE_TORCH_LIBRARY_IMPL(freewheel, CUDA, m){
    FREEWHEEL_OPERATORS(FREEWHEEL_RUN)} STABLE_TORCH_LIBRARY_IMPL(freewheel, Meta, m){
    FREEWHEEL_OPERATORS(FREEWHEEL_META)} STABLE_TORCH_LIBRARY_IMPL(freewheel,
                                                                   CompositeExplicitAutograd, m) {
  FREEWHEEL_FUNCTIONS(FREEWHEEL_CALL)
}
