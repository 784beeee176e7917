// What _kernels offers to _torch and _C: one table of C functions with its size and a version.
#pragma once

#include <stdint.h>

#include "ops.h"

// Raised whenever a record of ops.h or the meaning of an entry changes.
#define FW_INTERFACE_VERSION 2

// One piece of a parallel loop over [begin, end).
typedef void (*FwBody)(int64_t begin, int64_t end, void* context);
// Runs body over pieces of at least grain items; torch's own pool, handed in by the binding.
typedef void (*FwParallelFor)(int64_t begin, int64_t end, int64_t grain, FwBody body,
                              void* context);

// Where an operation runs, and where it says what went wrong.
typedef struct FwExec {
  int32_t device;  // -1: CPU; otherwise the CUDA device's ordinal as torch counts
  int32_t reserved;
  void* stream;                // CUDA: the cudaStream_t to launch on (null: the default stream)
  FwParallelFor parallel_for;  // CPU: null runs on the calling thread
  char* error;                 // filled with a sentence when an operation returns non-zero
  int64_t error_size;          // bytes at error, including the closing zero
} FwExec;

typedef struct FwKernels {
  int64_t size;               // sizeof(FwKernels) of the library that made it
  int64_t interface_version;  // FW_INTERFACE_VERSION of the library that made it

  // Each returns 0, or 1 with a sentence in exec->error.
  int32_t (*rms_norm)(const FwExec*, const FwRmsNormArgs*);
  int32_t (*fused_add_rms_norm)(const FwExec*, const FwFusedAddRmsNormArgs*);
  int32_t (*silu_and_mul)(const FwExec*, const FwSiluAndMulArgs*);
  int32_t (*rotary_embedding)(const FwExec*, const FwRotaryEmbeddingArgs*);
  int32_t (*reshape_and_cache)(const FwExec*, const FwReshapeAndCacheArgs*);
  int32_t (*paged_attention)(const FwExec*, const FwPagedAttentionArgs*);

  // The number of context splits for this call on this device (args->splits is ignored).
  int32_t (*paged_attention_splits)(const FwExec*, const FwPagedAttentionArgs*, int64_t longest);

  // Loads every device image for exec->device now, so that a later stream capture loads nothing.
  int32_t (*warm_up)(const FwExec*);

  // The CPU instruction set in use: "x86-64-v2", "avx2", "avx512"; null with exec->error filled
  // when FREEWHEEL_ISA names one that this machine or this library lacks.
  const char* (*cpu_isa)(const FwExec*);

  // The device images inside, as "8.0 8.6 8.9 9.0 9.0+PTX"; "" for a CPU library. No driver is
  // touched.
  const char* (*archs)(void);

  // The CPU instruction sets inside, from the least to the best, as "x86-64-v2 avx2 avx512"; with
  // usable != 0 only those that this machine runs. FREEWHEEL_ISA has no say in it.
  const char* (*cpu_isas)(int32_t usable);

  // The process that opened the driver, 0 if none has: another one than this was its parent.
  int32_t (*driver_process)(void);
} FwKernels;

#ifdef __cplusplus
extern "C"
#endif
    __attribute__((visibility("default"))) const FwKernels* freewheel_kernels(void);
