// What the tests call beside the kernels: launch.h, and the conversions of the stand-in headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda_words.h"
#include "kernels/launch.h"

extern "C" {

#define EXPORT_SHAPE(op, Args)                            \
  void fw_shape_##op(const Args* args, FwLaunch* launch); \
  void fw_shape_##op(const Args* args, FwLaunch* launch) { *launch = fw_launch_##op(*args); }

EXPORT_SHAPE(rms_norm, FwRmsNormArgs)
EXPORT_SHAPE(fused_add_rms_norm, FwFusedAddRmsNormArgs)
EXPORT_SHAPE(silu_and_mul, FwSiluAndMulArgs)
EXPORT_SHAPE(rotary_embedding, FwRotaryEmbeddingArgs)
EXPORT_SHAPE(reshape_and_cache, FwReshapeAndCacheArgs)
EXPORT_SHAPE(paged_attention, FwPagedAttentionArgs)
EXPORT_SHAPE(paged_attention_reduce, FwPagedAttentionArgs)

const FwImageKernels* fw_shape_image(int32_t index);
const FwImageKernels* fw_shape_image(int32_t index) {
  return index < fw_image_kernels_count ? &fw_image_kernels[index] : nullptr;
}

int32_t fw_shape_splits(int64_t rows, int64_t longest, int64_t processors);
int32_t fw_shape_splits(int64_t rows, int64_t longest, int64_t processors) {
  return fw_choose_splits(rows, longest, processors);
}

const char* fw_shape_misaligned(const FwPagedAttentionArgs* args);
const char* fw_shape_misaligned(const FwPagedAttentionArgs* args) { return fw_misaligned(*args); }

void fw_convert_from_half(const __half* from, float* to, int64_t count);
void fw_convert_from_half(const __half* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = __half2float(from[i]);
}

void fw_convert_to_half(const float* from, __half* to, int64_t count);
void fw_convert_to_half(const float* from, __half* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = __float2half_rn(from[i]);
}

void fw_convert_from_bfloat16(const __nv_bfloat16* from, float* to, int64_t count);
void fw_convert_from_bfloat16(const __nv_bfloat16* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = __bfloat162float(from[i]);
}

void fw_convert_to_bfloat16(const float* from, __nv_bfloat16* to, int64_t count);
void fw_convert_to_bfloat16(const float* from, __nv_bfloat16* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = __float2bfloat16_rn(from[i]);
}

}  // extern "C"
