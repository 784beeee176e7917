// What the emulation library (the .cu files compiled by g++, one fiber per CUDA thread) exports,
// and what a fake driver calls: for each kernel NAME a function fw_emul_NAME, and one launcher.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FwEmulKernel {
  void (*run)(void** params);  // casts params[i] to the kernel's own parameter types
  int32_t param_count;
  const uint16_t* param_sizes;  // bytes, deduced from the kernel's own signature
} FwEmulKernel;

typedef void (*FwEmulInfo)(FwEmulKernel*);  // the type of fw_emul_NAME

// Runs a whole grid. Returns 0, or 1 after a divergent barrier, with a sentence in error.
// Fiber order comes from FW_FIBER_ORDER: ascending (default), descending, shuffled:SEED.
int32_t fw_emul_launch(void (*run)(void**), void** params, const uint32_t grid[3],
                       const uint32_t block[3], size_t shared_bytes, char* error,
                       size_t error_size);

#ifdef __cplusplus
}
#endif
