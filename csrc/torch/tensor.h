// What the checks need of a torch tensor, and what operations need of torch, without any torch
// header: the two bindings fill these in, each in its own ABI.
#pragma once

#include <cstdint>

#include "abi/table.h"

namespace fw {

enum class Dtype : int32_t {
  kFloat32 = FW_FLOAT32,
  kFloat16 = FW_FLOAT16,
  kBFloat16 = FW_BFLOAT16,
  kInt32,
  kInt64,
  kOther,
};

// A borrowed view: sizes and strides belong to the tensor.
struct Tensor {
  void* data = nullptr;
  int64_t dim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  Dtype dtype = Dtype::kOther;
  const char* dtype_name = "";  // as torch prints it, for messages
  bool cuda = false;
  int32_t device = -1;  // CUDA: ordinal
};

// What torch lends to one call.
struct Runtime {
  FwParallelFor parallel_for = nullptr;
  // Uninitialised float32 memory on the call's device, alive until the call returns.
  float* (*scratch)(void* context, int64_t count) = nullptr;
  void* context = nullptr;
};

}  // namespace fw
