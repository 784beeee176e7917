// rotary_embedding and reshape_and_cache: a token by one thread.
#pragma once

#include "kernels/cpu/vec.h"

namespace {

// Splits two vectors of (first, second) pairs, and joins them again.
#if FW_VECTOR_BYTES == 64
#define FW_EVEN {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
#define FW_ODD {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
#define FW_LOW {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define FW_HIGH {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#elif FW_VECTOR_BYTES == 32
#define FW_EVEN {0, 2, 4, 6, 8, 10, 12, 14}
#define FW_ODD {1, 3, 5, 7, 9, 11, 13, 15}
#define FW_LOW {0, 8, 1, 9, 2, 10, 3, 11}
#define FW_HIGH {4, 12, 5, 13, 6, 14, 7, 15}
#else
#define FW_EVEN {0, 2, 4, 6}
#define FW_ODD {1, 3, 5, 7}
#define FW_LOW {0, 4, 1, 5}
#define FW_HIGH {2, 6, 3, 7}
#endif

// Pairs (i, i + half).
template <class E>
void RotateNeox(typename E::Storage* head, const float* cosines, const float* sines, int64_t half) {
  typename E::Storage* other = head + half;
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = Least(kLanes, half - i);
    const bool whole = n == kLanes;
    const Vec a = whole ? E::Load(head + i) : LoadPart<E>(head + i, n);
    const Vec b = whole ? E::Load(other + i) : LoadPart<E>(other + i, n);
    const Vec c = whole ? Float32::Load(cosines + i) : LoadPart<Float32>(cosines + i, n);
    const Vec s = whole ? Float32::Load(sines + i) : LoadPart<Float32>(sines + i, n);
    if (whole) {
      E::Store(head + i, a * c - b * s);
      E::Store(other + i, b * c + a * s);
    } else {
      StorePart<E>(head + i, a * c - b * s, n);
      StorePart<E>(other + i, b * c + a * s, n);
    }
  }
}

// Pairs (2i, 2i + 1).
template <class E>
void RotateGptj(typename E::Storage* head, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = Least(kLanes, half - i);
    const int64_t low = Least(kLanes, 2 * n);
    const int64_t high = 2 * n - low;
    typename E::Storage* pairs = head + 2 * i;
    const Vec x = LoadPart<E>(pairs, low);
    const Vec y = LoadPart<E>(pairs + low, high);
    const Vec a = __builtin_shuffle(x, y, VecInt FW_EVEN);
    const Vec b = __builtin_shuffle(x, y, VecInt FW_ODD);
    const Vec c = LoadPart<Float32>(cosines + i, n);
    const Vec s = LoadPart<Float32>(sines + i, n);
    const Vec first = a * c - b * s;
    const Vec second = b * c + a * s;
    StorePart<E>(pairs, __builtin_shuffle(first, second, VecInt FW_LOW), low);
    StorePart<E>(pairs + low, __builtin_shuffle(first, second, VecInt FW_HIGH), high);
  }
}

#undef FW_EVEN
#undef FW_ODD
#undef FW_LOW
#undef FW_HIGH

template <class E>
void RotateHeads(const FwRotaryEmbeddingArgs& a, void* tensor, int64_t offset, int64_t heads,
                 int64_t head_stride, const float* cos_sin) {
  const int64_t half = a.rotary_size / 2;
  for (int64_t h = 0; h < heads; ++h) {
    typename E::Storage* head =
        static_cast<typename E::Storage*>(tensor) + offset + h * head_stride;
    if (a.neox != 0) {
      RotateNeox<E>(head, cos_sin, cos_sin + half, half);
    } else {
      RotateGptj<E>(head, cos_sin, cos_sin + half, half);
    }
  }
}

template <class E>
void RotaryTokens(int64_t begin, int64_t end, void* context) {
  const FwRotaryEmbeddingArgs& a = *static_cast<const FwRotaryEmbeddingArgs*>(context);
  for (int64_t t = begin; t < end; ++t) {
    assert(0 <= a.positions[t] && a.positions[t] < a.max_position);
    const float* cos_sin = a.cos_sin + a.positions[t] * a.rotary_size;
    RotateHeads<E>(a, a.query, t * a.query_stride, a.query_heads, a.query_head_stride, cos_sin);
    RotateHeads<E>(a, a.key, t * a.key_stride, a.key_heads, a.key_head_stride, cos_sin);
  }
}

void RotaryEmbedding(const FwExec* exec, const FwRotaryEmbeddingArgs* args) {
  FwRotaryEmbeddingArgs a = *args;
  Parallel(exec, a.tokens, RowGrain((a.query_heads + a.key_heads) * a.rotary_size),
           ForDtype(a.dtype, RotaryTokens<Float32>, RotaryTokens<Float16>, RotaryTokens<BFloat16>),
           &a);
}

inline void CopyHeads(char* to, const char* from, int64_t heads, int64_t bytes, int64_t step) {
  for (int64_t h = 0; h < heads; ++h) {
    __builtin_memcpy(to + h * bytes, from + h * step, static_cast<unsigned long>(bytes));
  }
}

void CacheTokens(int64_t begin, int64_t end, void* context) {
  const FwReshapeAndCacheArgs& a = *static_cast<const FwReshapeAndCacheArgs*>(context);
  const int64_t element = a.dtype == FW_FLOAT32 ? 4 : 2;
  const int64_t head = a.head_size * element;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t slot = a.slot_mapping[t];
    if (slot < 0) continue;  // padding
    assert(slot < a.blocks << a.block_size_log2);
    CopyHeads(static_cast<char*>(a.key_cache) + slot * a.kv_heads * head,
              static_cast<const char*>(a.key) + t * a.key_stride * element, a.kv_heads, head,
              a.key_head_stride * element);
    CopyHeads(static_cast<char*>(a.value_cache) + slot * a.kv_heads * head,
              static_cast<const char*>(a.value) + t * a.value_stride * element, a.kv_heads, head,
              a.value_head_stride * element);
  }
}

void ReshapeAndCache(const FwExec* exec, const FwReshapeAndCacheArgs* args) {
  FwReshapeAndCacheArgs a = *args;
  Parallel(exec, a.tokens, RowGrain(2 * a.kv_heads * a.head_size), CacheTokens, &a);
}

}  // namespace
