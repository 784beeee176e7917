#include "ops.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

#include "driver/device.h"

namespace {

// Runs `work`, which returns a sentence, empty for success, and hands it on: 0, or 1 with
// exec->error filled. No exception crosses the table, which is C; only memory can run out here.
template <typename Work>
int32_t Guarded(const FwExec* exec, const char* operation, const Work& work) {
  const auto report = [&](const char* error) {
    if (exec->error != nullptr && exec->error_size > 0) {
      std::snprintf(exec->error, static_cast<size_t>(exec->error_size), "%s: %s", operation, error);
    }
    return 1;
  };
  try {
    const std::string error = work();
    return error.empty() ? 0 : report(error.c_str());
  } catch (const std::exception& problem) {
    return report(problem.what());
  }
}

std::string NoKernel(int32_t dtype, int64_t head_size) {
  if (dtype < FW_FLOAT32 || dtype > FW_BFLOAT16) {
    return "no CUDA kernel for dtype " + std::to_string(dtype);
  }
  std::string text = "no CUDA kernel for head size " + std::to_string(head_size) + ", only for";
  for (const int64_t size : fw_attention_head_sizes) text += " " + std::to_string(size);
  return text;
}

std::string FindDevice(const FwExec* exec, fw::Device** device) {
  if (fw_image_count == 0) {
    return "this freewheel was built without CUDA kernels; install a CUDA variant of it, such as "
           "cu121, or use CPU tensors";
  }
  std::string error;
  *device = fw::Device::Get(exec->device, &error);
  return error;
}

// Finds the device and runs the launches in order.
template <typename Args>
std::string Launch(const FwExec* exec, const Args& args, std::initializer_list<FwLaunch> launches) {
  fw::Device* device = nullptr;
  for (const FwLaunch& launch : launches) {
    if (std::find(launch.grid, launch.grid + 3, 0u) != launch.grid + 3) continue;
    std::string error = device == nullptr ? FindDevice(exec, &device) : "";
    if (error.empty()) error = device->Launch(launch, &args, exec->stream);
    if (!error.empty()) return error;
  }
  return "";
}

template <typename Args>
int32_t Run(const char* operation, const FwExec* exec, const Args* args, int64_t head_size,
            std::initializer_list<FwLaunch> launches) {
  return Guarded(exec, operation, [&] {
    for (const FwLaunch& launch : launches) {
      if (launch.kernel == nullptr) return NoKernel(args->dtype, head_size);
    }
    return Launch(exec, *args, launches);
  });
}

std::string CommonArchs() {
  std::vector<fw::ImageEntry> common;
  for (int32_t i = 0; i < fw_image_count; ++i) {
    const fw::Fatbin fatbin = fw::ReadFatbin(fw_images[i].begin, fw_images[i].end);
    if (i == 0) {
      common = fatbin.entries;
      continue;
    }
    const auto missing = [&fatbin](const fw::ImageEntry& entry) {
      const std::string name = fw::ArchName(entry);
      return std::none_of(
          fatbin.entries.begin(), fatbin.entries.end(),
          [&name](const fw::ImageEntry& other) { return fw::ArchName(other) == name; });
    };
    common.erase(std::remove_if(common.begin(), common.end(), missing), common.end());
  }
  return fw::ArchList(common);
}

}  // namespace

#define FW_DEFINE_OPERATION(name, Args)                          \
  int32_t fw_cuda_##name(const FwExec* exec, const Args* args) { \
    return Run(#name, exec, args, 0, {fw_launch_##name(*args)}); \
  }

FW_DEFINE_OPERATION(rms_norm, FwRmsNormArgs)
FW_DEFINE_OPERATION(fused_add_rms_norm, FwFusedAddRmsNormArgs)
FW_DEFINE_OPERATION(silu_and_mul, FwSiluAndMulArgs)
FW_DEFINE_OPERATION(rotary_embedding, FwRotaryEmbeddingArgs)
FW_DEFINE_OPERATION(reshape_and_cache, FwReshapeAndCacheArgs)

#undef FW_DEFINE_OPERATION

int32_t fw_cuda_paged_attention(const FwExec* exec, const FwPagedAttentionArgs* args) {
  const FwLaunch attention = fw_launch_paged_attention(*args);
  const FwLaunch reduce = fw_launch_paged_attention_reduce(*args);
  if (const char* name = fw_misaligned(*args)) {
    return Guarded(exec, "paged_attention", [name] {
      return std::string(name) + " must start at a multiple of " + std::to_string(kVectorBytes) +
             " bytes";
    });
  }
  if (args->splits <= 1) return Run("paged_attention", exec, args, args->head_size, {attention});
  return Run("paged_attention", exec, args, args->head_size, {attention, reduce});
}

int32_t fw_cuda_paged_attention_splits(const FwExec* exec, const FwPagedAttentionArgs* args,
                                       int64_t longest) {
  if (args->tokens <= 0 || args->heads <= 0) return 1;
  int32_t splits = 1;
  Guarded(exec, "paged_attention", [&] {
    fw::Device* device = nullptr;
    const std::string error = FindDevice(exec, &device);
    if (error.empty()) {
      const int64_t attended = args->window > 0 ? std::min(longest, args->window) : longest;
      splits = fw_choose_splits(args->tokens * args->heads, attended, device->processors());
    }
    return error;
  });
  return splits;
}

int32_t fw_cuda_warm_up(const FwExec* exec) {
  return Guarded(exec, "warm_up", [&] {
    fw::Device* device = nullptr;
    std::string error = FindDevice(exec, &device);
    for (int32_t i = 0; error.empty() && i < fw_image_kernels_count; ++i) {
      error = device->Load(fw_image_kernels[i]);
    }
    return error;
  });
}

const char* fw_cuda_archs(void) {
  try {
    static const std::string archs = CommonArchs();
    return archs.c_str();
  } catch (const std::exception&) {
    return "";
  }
}

int32_t fw_cuda_driver_process(void) { return fw::Driver::Process(); }
