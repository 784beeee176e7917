// The names of the driver's result codes, for a driver whose cuGetErrorName is missing or silent.
#pragma once

#include <cstdint>

namespace fw {

// "CUDA_ERROR_NO_DEVICE" for 100; null for a code that cuda.h of CUDA 12.1 does not name.
const char* ResultName(int32_t result);

}  // namespace fw
