// The CUDA half of the table in abi/table.h. Each operation returns 0, or 1 with a sentence in
// exec->error; an empty input launches nothing and is valid. Work is queued on exec->stream;
// nothing here waits for the device.
#pragma once

#include "abi/table.h"

#pragma GCC visibility push(hidden)
extern "C" {

int32_t fw_cuda_rms_norm(const FwExec* exec, const FwRmsNormArgs* args);
int32_t fw_cuda_fused_add_rms_norm(const FwExec* exec, const FwFusedAddRmsNormArgs* args);
int32_t fw_cuda_silu_and_mul(const FwExec* exec, const FwSiluAndMulArgs* args);
int32_t fw_cuda_rotary_embedding(const FwExec* exec, const FwRotaryEmbeddingArgs* args);
int32_t fw_cuda_reshape_and_cache(const FwExec* exec, const FwReshapeAndCacheArgs* args);
int32_t fw_cuda_paged_attention(const FwExec* exec, const FwPagedAttentionArgs* args);

// The splits of the context that fill the device; 1 where there is no usable device, whose reason
// the operation itself then gives.
int32_t fw_cuda_paged_attention_splits(const FwExec* exec, const FwPagedAttentionArgs* args,
                                       int64_t longest);

// Loads every image and every kernel for exec->device.
int32_t fw_cuda_warm_up(const FwExec* exec);

// The archs that every device image holds, as "8.0 8.6 8.9 9.0 9.0+PTX"; "" without images.
const char* fw_cuda_archs(void);

// The process that opened the driver, 0 if none has.
int32_t fw_cuda_driver_process(void);

}  // extern "C"
#pragma GCC visibility pop
