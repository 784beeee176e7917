// Which kernel an operation launches, from which device image, and in what shape: pure functions of
// the operation's record, for the CUDA launch code, the fake driver and the emulation's tests
// alike.
//
// `kernel` is null when no kernel exists for the record's dtype or head size. A grid with a zero in
// it means that there is nothing to do: the caller launches nothing and succeeds. A size that no
// grid can hold is given as the largest number, which every driver refuses.
#pragma once

#include <stdint.h>

#include "abi/limits.h"
#include "abi/ops.h"
#include "kernels/shapes.h"

struct FwLaunch {
  const char* kernel;  // extern "C" name in the image; null: no such kernel
  const char* image;   // stem of the .cu whose fatbin holds it
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;  // dynamic; every kernel here uses static shared memory only
};

// All kernels of one image, for warming up and for checking what a fatbin holds.
struct FwImageKernels {
  const char* image;
  const char* const* kernels;
  int32_t count;
};

#define FW_DTYPE_NAMES(stem) stem "_f32", stem "_f16", stem "_bf16"

inline constexpr const char* fw_rms_norm_kernels[] = {FW_DTYPE_NAMES("fw_rms_norm"),
                                                      FW_DTYPE_NAMES("fw_fused_add_rms_norm")};
inline constexpr const char* fw_activation_kernels[] = {FW_DTYPE_NAMES("fw_silu_and_mul")};
inline constexpr const char* fw_rotary_kernels[] = {FW_DTYPE_NAMES("fw_rotary_embedding")};
inline constexpr const char* fw_cache_kernels[] = {FW_DTYPE_NAMES("fw_reshape_and_cache")};
inline constexpr const char* fw_attention_kernels[] = {
    FW_DTYPE_NAMES("fw_paged_attention_64"),  FW_DTYPE_NAMES("fw_paged_attention_80"),
    FW_DTYPE_NAMES("fw_paged_attention_96"),  FW_DTYPE_NAMES("fw_paged_attention_128"),
    FW_DTYPE_NAMES("fw_paged_attention_256"), FW_DTYPE_NAMES("fw_paged_attention_reduce")};
#define FW_ITEM(value) value,
inline constexpr int64_t fw_attention_head_sizes[] = {FW_HEAD_SIZES(FW_ITEM)};
#undef FW_ITEM

#undef FW_DTYPE_NAMES

inline constexpr FwImageKernels fw_image_kernels[] = {
    {"rms_norm", fw_rms_norm_kernels, 6},    {"activation", fw_activation_kernels, 3},
    {"rotary", fw_rotary_kernels, 3},        {"cache", fw_cache_kernels, 3},
    {"attention", fw_attention_kernels, 18},
};
inline constexpr int32_t fw_image_kernels_count = 5;

// The first of three consecutive names (f32, f16, bf16) starts at `first`.
inline const char* fw_kernel_for_dtype(const char* const* first, int32_t dtype) {
  return dtype >= FW_FLOAT32 && dtype <= FW_BFLOAT16 ? first[dtype] : nullptr;
}

inline uint32_t fw_grid_size(int64_t wanted) {
  if (wanted <= 0) return 0;
  return wanted > int64_t{UINT32_MAX} ? UINT32_MAX : static_cast<uint32_t>(wanted);
}

inline uint32_t fw_grid_product(int64_t a, int64_t b) {
  if (a <= 0 || b <= 0) return 0;
  return a > INT64_MAX / b ? UINT32_MAX : fw_grid_size(a * b);
}

inline int64_t fw_dtype_bytes(int32_t dtype) { return dtype == FW_FLOAT32 ? 4 : 2; }

// Threads of a norm: one for each vector of the row, whole warps, bounded.
inline uint32_t fw_norm_threads(int64_t hidden, int32_t dtype) {
  const int64_t vectors = hidden * fw_dtype_bytes(dtype) / kVectorBytes;
  const int64_t threads = (vectors + kWarp - 1) / kWarp * kWarp;
  if (threads < kWarp) return kWarp;
  if (threads > kNormMaxThreads) return kNormMaxThreads;
  return static_cast<uint32_t>(threads);
}

inline FwLaunch fw_launch_rms_norm(const FwRmsNormArgs& args) {
  return {fw_kernel_for_dtype(fw_rms_norm_kernels, args.dtype),
          "rms_norm",
          {args.hidden > 0 ? fw_grid_size(args.tokens) : 0, 1, 1},
          {fw_norm_threads(args.hidden, args.dtype), 1, 1},
          0};
}

inline FwLaunch fw_launch_fused_add_rms_norm(const FwFusedAddRmsNormArgs& args) {
  return {fw_kernel_for_dtype(fw_rms_norm_kernels + 3, args.dtype),
          "rms_norm",
          {args.hidden > 0 ? fw_grid_size(args.tokens) : 0, 1, 1},
          {fw_norm_threads(args.hidden, args.dtype), 1, 1},
          0};
}

inline FwLaunch fw_launch_silu_and_mul(const FwSiluAndMulArgs& args) {
  const int64_t part = int64_t{kActivationThreads} * kVectorBytes / fw_dtype_bytes(args.dtype);
  const int64_t parts = args.size <= 0 ? 0 : (args.size - 1) / part + 1;
  return {fw_kernel_for_dtype(fw_activation_kernels, args.dtype),
          "activation",
          {fw_grid_size(args.tokens), parts > 65535 ? 65535 : fw_grid_size(parts), 1},
          {kActivationThreads, 1, 1},
          0};
}

inline FwLaunch fw_launch_rotary_embedding(const FwRotaryEmbeddingArgs& args) {
  const bool work = args.rotary_size > 0 && args.query_heads + args.key_heads > 0;
  return {fw_kernel_for_dtype(fw_rotary_kernels, args.dtype),
          "rotary",
          {work ? fw_grid_size(args.tokens) : 0, 1, 1},
          {kRotaryLanes, kRotaryHeads, 1},
          0};
}

inline FwLaunch fw_launch_reshape_and_cache(const FwReshapeAndCacheArgs& args) {
  const bool work = args.kv_heads > 0 && args.head_size > 0;
  return {fw_kernel_for_dtype(fw_cache_kernels, args.dtype),
          "cache",
          {work ? fw_grid_size(args.tokens) : 0, 1, 1},
          {kCacheLanes, kCacheHeads, 1},
          0};
}

// Heads vary fastest along x, so that the query heads of one KV head run side by side and meet in
// the L2 cache; x alone can hold more than 65535 tokens.
inline FwLaunch fw_launch_paged_attention(const FwPagedAttentionArgs& args) {
  const char* kernel = nullptr;
  for (int32_t i = 0; i < 5; ++i) {
    if (fw_attention_head_sizes[i] == args.head_size) {
      kernel = fw_kernel_for_dtype(fw_attention_kernels + 3 * i, args.dtype);
    }
  }
  return {kernel,
          "attention",
          {fw_grid_product(args.tokens, args.heads), fw_grid_size(args.splits), 1},
          {kAttentionThreads, 1, 1},
          0};
}

// The second pass, needed when splits > 1: joins the partial results into out.
inline FwLaunch fw_launch_paged_attention_reduce(const FwPagedAttentionArgs& args) {
  return {fw_kernel_for_dtype(fw_attention_kernels + 15, args.dtype),
          "attention",
          {fw_grid_product(args.tokens, args.heads), 1, 1},
          {kReduceThreads, 1, 1},
          0};
}

// Splits of the context that fill a device of `processors` multiprocessors when `rows` (tokens x
// heads) blocks would not: at least 256 tokens of context a split, at most 32 splits.
inline int32_t fw_choose_splits(int64_t rows, int64_t longest, int64_t processors) {
  const int64_t wanted = rows <= 0 ? 1 : (4 * processors + rows - 1) / rows;
  const int64_t useful = longest / 256;
  const int64_t splits = wanted < useful ? wanted : useful;
  if (splits < 1) return 1;
  return splits > 32 ? 32 : static_cast<int32_t>(splits);
}

// The tensor that the attention kernel cannot read: its 128-bit loads need caches that start at
// multiples of 16 bytes (every row then does). Null when both do.
inline const char* fw_misaligned(const FwPagedAttentionArgs& args) {
  if (reinterpret_cast<uintptr_t>(args.key_cache) % kVectorBytes != 0) return "key_cache";
  if (reinterpret_cast<uintptr_t>(args.value_cache) % kVectorBytes != 0) return "value_cache";
  return nullptr;
}
