#include "torch/bind.h"

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "compat/dl.h"

namespace fw {
namespace {

std::atomic<const FwKernels*> bound{nullptr};

// A C function of libtorch_cuda.so, there in torch 2.4 and in 2.10 and later. A direct reference
// would keep this library from loading beside a CPU torch.
using StreamOf = int32_t (*)(int32_t device, void** stream);

StreamOf FindStreamOf() {
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<StreamOf>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

StreamOf TorchStreamOf() {
  static const StreamOf function = FindStreamOf();
  return function;
}

}  // namespace

const FwKernels& Kernels() {
  const FwKernels* table = bound.load(std::memory_order_acquire);
  if (table == nullptr) {
    throw std::runtime_error(
        "freewheel: _torch.so has no kernels yet; call freewheel.load() first");
  }
  return *table;
}

bool HasTorchCuda() { return TorchStreamOf() != nullptr; }

void* CurrentStream(int32_t device) {
  const StreamOf stream_of = TorchStreamOf();
  void* stream = nullptr;
  if (stream_of != nullptr && stream_of(device, &stream) != 0) {
    throw std::runtime_error("freewheel: torch gives no current stream for cuda:" +
                             std::to_string(device));
  }
  return stream;
}

}  // namespace fw

const char* freewheel_bind(const FwKernels* table) {
  static char sentence[256];
  if (table == nullptr) return "_kernels gave no table";
  if (table->interface_version != FW_INTERFACE_VERSION ||
      table->size != static_cast<int64_t>(sizeof(FwKernels))) {
    std::snprintf(sentence, sizeof(sentence),
                  "_kernels offers interface version %lld (%lld bytes), but _torch was built for "
                  "version %d (%zu bytes): the two come from different builds",
                  static_cast<long long>(table->interface_version),
                  static_cast<long long>(table->size), FW_INTERFACE_VERSION, sizeof(FwKernels));
    return sentence;
  }
  fw::bound.store(table, std::memory_order_release);
  return nullptr;
}
