// The CPU half of the table: each operation checks every number that it takes from memory (slots,
// block numbers, positions, lengths) before it touches the memory they point to, then runs the
// kernels of the best instruction set. Each returns 0, or 1 with a sentence in exec->error.
#pragma once

#include "abi/table.h"

int32_t fw_cpu_rms_norm(const FwExec* exec, const FwRmsNormArgs* args);
int32_t fw_cpu_fused_add_rms_norm(const FwExec* exec, const FwFusedAddRmsNormArgs* args);
int32_t fw_cpu_silu_and_mul(const FwExec* exec, const FwSiluAndMulArgs* args);
int32_t fw_cpu_rotary_embedding(const FwExec* exec, const FwRotaryEmbeddingArgs* args);
int32_t fw_cpu_reshape_and_cache(const FwExec* exec, const FwReshapeAndCacheArgs* args);
int32_t fw_cpu_paged_attention(const FwExec* exec, const FwPagedAttentionArgs* args);

// Splits of the context, a function of the shapes alone, so that results do not depend on threads.
int32_t fw_cpu_paged_attention_splits(const FwExec* exec, const FwPagedAttentionArgs* args,
                                      int64_t longest);

// "x86-64-v2", "avx2" or "avx512"; null with exec->error filled when none can be used.
const char* fw_cpu_isa(const FwExec* exec);

// The instruction sets inside, from the least to the best, or only those that this machine runs.
const char* fw_cpu_isas(int32_t usable);
