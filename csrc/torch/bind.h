// The other half: the table of _kernels, handed in by freewheel_bind, and torch's CUDA stream.
#pragma once

#include "abi/table.h"

namespace fw {

// The bound table; throws std::runtime_error before freewheel_bind.
const FwKernels& Kernels();

// Whether this process has loaded torch's CUDA library. Loads nothing.
bool HasTorchCuda();

// torch's current stream on a device, as a cudaStream_t; the default stream where torch has no
// CUDA.
void* CurrentStream(int32_t device);

}  // namespace fw

// Takes the table of _kernels. Null when the two libraries fit; otherwise the sentence why not.
extern "C" __attribute__((visibility("default"))) const char* freewheel_bind(
    const FwKernels* table);
