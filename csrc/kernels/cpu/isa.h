// The kernels exist once for each instruction set, compiled from one source (kernels.cpp) into
// objects that share no inline function. This is what such an object offers.
#pragma once

#include "abi/table.h"

// Arguments are checked already: nothing here can fail.
typedef struct FwCpuKernels {
  const char* isa;
  void (*rms_norm)(const FwExec*, const FwRmsNormArgs*);
  void (*fused_add_rms_norm)(const FwExec*, const FwFusedAddRmsNormArgs*);
  void (*silu_and_mul)(const FwExec*, const FwSiluAndMulArgs*);
  void (*rotary_embedding)(const FwExec*, const FwRotaryEmbeddingArgs*);
  void (*reshape_and_cache)(const FwExec*, const FwReshapeAndCacheArgs*);
  void (*paged_attention)(const FwExec*, const FwPagedAttentionArgs*);
} FwCpuKernels;

extern "C" const FwCpuKernels fw_cpu_kernels_v2;      // x86-64-v2
extern "C" const FwCpuKernels fw_cpu_kernels_avx2;    // and AVX2, FMA, F16C
extern "C" const FwCpuKernels fw_cpu_kernels_avx512;  // and AVX-512 F, BW, DQ, VL

namespace fw {

// The kernels to use, chosen at the first call; null with a sentence in exec->error when
// FREEWHEEL_ISA names an instruction set that this machine or this library lacks.
const FwCpuKernels* CpuKernels(const FwExec* exec);

// The instruction sets of this library, from the least to the best, or those that the machine runs.
const char* CpuIsas(bool usable);

}  // namespace fw
