// The argument records of every operation. One record serves the torch binding, the CPU kernel, the
// CUDA kernel (passed by value as its only parameter) and the emulation, so that they cannot drift.
//
// Strides and sizes are in elements unless a name says bytes. The last dimension of every tensor is
// contiguous. Pointers are to the memory of the device that runs the operation.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

enum FwDtype { FW_FLOAT32 = 0, FW_FLOAT16 = 1, FW_BFLOAT16 = 2 };

// out[t, i] = x[t, i] / sqrt(mean(x[t]^2) + eps) * weight[i]
typedef struct FwRmsNormArgs {
  void* out;           // [tokens, hidden]
  const void* x;       // [tokens, hidden]
  const void* weight;  // [hidden]
  int64_t tokens, hidden;
  int64_t out_stride, x_stride;  // between tokens
  float eps;
  int32_t dtype;  // FwDtype of all three
} FwRmsNormArgs;

// residual += x (rounded to dtype), then x = rms_norm(residual), both in place
typedef struct FwFusedAddRmsNormArgs {
  void* x;             // [tokens, hidden]
  void* residual;      // [tokens, hidden]
  const void* weight;  // [hidden]
  int64_t tokens, hidden;
  int64_t x_stride, residual_stride;  // between tokens
  float eps;
  int32_t dtype;
} FwFusedAddRmsNormArgs;

// out[t, i] = silu(x[t, i]) * x[t, size + i]
typedef struct FwSiluAndMulArgs {
  void* out;      // [tokens, size]
  const void* x;  // [tokens, 2 * size]
  int64_t tokens, size;
  int64_t out_stride, x_stride;  // between tokens
  int32_t dtype;
  int32_t reserved;
} FwSiluAndMulArgs;

// Rotates the first rotary_size elements of each head in place. neox pairs
// (i, i + rotary_size / 2), gptj pairs (2i, 2i + 1); cos_sin[p] holds rotary_size / 2 cosines,
// then as many sines.
typedef struct FwRotaryEmbeddingArgs {
  const int64_t* positions;  // [tokens], each in 0 .. max_position - 1
  void* query;               // [tokens, query_heads, head_size]
  void* key;                 // [tokens, key_heads, head_size], may be null with key_heads = 0
  const float* cos_sin;      // [max_position, rotary_size], float32 whatever dtype is
  int64_t tokens, query_heads, key_heads, head_size, rotary_size, max_position;
  int64_t query_stride, key_stride;            // between tokens
  int64_t query_head_stride, key_head_stride;  // between heads
  int32_t neox;                                // 1 neox, 0 gptj
  int32_t dtype;                               // of query and key
} FwRotaryEmbeddingArgs;

// cache[slot / block_size, slot % block_size, head] = key[t, head], slot = slot_mapping[t];
// a slot of -1 is padding and writes nothing.
typedef struct FwReshapeAndCacheArgs {
  const void* key;              // [tokens, kv_heads, head_size]
  const void* value;            // [tokens, kv_heads, head_size]
  void* key_cache;              // [blocks, block_size, kv_heads, head_size], contiguous
  void* value_cache;            // [blocks, block_size, kv_heads, head_size], contiguous
  const int64_t* slot_mapping;  // [tokens]
  int64_t tokens, kv_heads, head_size, blocks;
  int64_t key_stride, value_stride;            // between tokens
  int64_t key_head_stride, value_head_stride;  // between heads
  int32_t block_size_log2;                     // 3, 4, 5: block sizes 8, 16, 32
  int32_t dtype;
} FwReshapeAndCacheArgs;

// Causal attention of a mixed batch over a paged cache. Sequence s owns the query tokens
// query_start_loc[s] .. query_start_loc[s + 1] - 1, which are its last ones: the i-th of n sits at
// position seq_lens[s] - n + i and attends to positions <= its own, and > its own - window where
// window > 0. Decode is n = 1; a mixed batch holds any mix.
typedef struct FwPagedAttentionArgs {
  void* out;                       // [tokens, heads, head_size]
  const void* query;               // [tokens, heads, head_size]
  const void* key_cache;           // [blocks, block_size, kv_heads, head_size], contiguous
  const void* value_cache;         // [blocks, block_size, kv_heads, head_size], contiguous
  const int32_t* block_table;      // [sequences, max_blocks], row stride block_table_stride
  const int32_t* seq_lens;         // [sequences], tokens in the cache including the queries
  const int32_t* query_start_loc;  // [sequences + 1]
  float* partial_out;              // [tokens, heads, splits, head_size], null when splits == 1
  float* partial_max;              // [tokens, heads, splits]
  float* partial_sum;              // [tokens, heads, splits]
  int64_t tokens, sequences, heads, kv_heads, head_size, blocks;
  int64_t max_blocks, block_table_stride;
  int64_t query_stride, query_head_stride, out_stride, out_head_stride;
  int64_t window;  // 0: none
  float scale;
  int32_t block_size_log2;
  int32_t splits;  // of the context, >= 1; a second pass joins them
  int32_t dtype;
} FwPagedAttentionArgs;
