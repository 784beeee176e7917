// Vectors of floats, as wide as the instruction set this file is compiled for, and the three
// element types as loads and stores of such vectors. Everything has internal linkage and uses no
// library template: a function shared between objects could end up in its AVX-512 copy for all.
// Indices were checked before any thread started (cpu.cpp); the debug twin asserts that they hold.
#pragma once

#include <assert.h>
#include <immintrin.h>
#include <stdint.h>

#include "abi/table.h"

namespace {

#if defined(__AVX512F__)
#define FW_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define FW_VECTOR_BYTES 32
#else
#define FW_VECTOR_BYTES 16
#endif

typedef float Vec __attribute__((vector_size(FW_VECTOR_BYTES)));
typedef int32_t VecInt __attribute__((vector_size(FW_VECTOR_BYTES)));
typedef uint32_t VecBits __attribute__((vector_size(FW_VECTOR_BYTES)));
typedef uint16_t VecHalf __attribute__((vector_size(FW_VECTOR_BYTES / 2)));

constexpr int64_t kLanes = FW_VECTOR_BYTES / 4;

template <class To, class From>
inline To ReadAs(const From* from) {
  To to;
  __builtin_memcpy(&to, from, sizeof(To));
  return to;
}

template <class To, class From>
inline void WriteAs(To* to, From from) {
  __builtin_memcpy(to, &from, sizeof(From));
}

template <class To, class From>
inline To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

inline Vec Broadcast(float value) { return Vec{} + value; }
inline Vec Choose(VecInt mask, Vec yes, Vec no) { return mask ? yes : no; }
inline Vec Max(Vec a, Vec b) { return a > b ? a : b; }  // b where either is NaN

inline float SumLanes(Vec v) {
#if FW_VECTOR_BYTES == 64
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#elif FW_VECTOR_BYTES == 32
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
#else
  const __m128 quarter = v;
#endif
  const __m128 two = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float MaxLanes(Vec v) {
  float most = v[0];
  for (int i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

// e^x within 2 ulp: x = n ln 2 + r, the Taylor series of e^r to r^7 / 7! (|r| <= ln 2 / 2 leaves
// 5e-9), and 2^n in two factors, so that overflow gives infinity and small results are gradual.
inline Vec Exp(Vec x) {
  x = Choose(x > 89.0f, Broadcast(89.0f), x);
  x = Choose(x < -105.0f, Broadcast(-105.0f), x);  // NaN fails both and stays
  const Vec magic = Broadcast(12582912.0f);        // 1.5 * 2^23: its last bit is worth one
  const Vec shifted = x * 1.44269504089f + magic;
  const VecInt n = Bits<VecInt>(shifted) - Bits<VecInt>(magic);
  const Vec whole = shifted - magic;
  const Vec r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;  // ln 2 in two parts
  Vec p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const VecInt first = n >> 1;
  const VecInt second = n - first;
  return p * Bits<Vec>((first + 127) << 23) * Bits<Vec>((second + 127) << 23);
}

// An element type: what lies in memory, and vectors of it as floats, rounded to nearest even.
struct Float32 {
  typedef float Storage;
  static Vec Load(const float* from) { return ReadAs<Vec>(from); }
  static void Store(float* to, Vec v) { WriteAs(to, v); }
};

struct Float16 {
  typedef uint16_t Storage;
#if FW_VECTOR_BYTES == 64
  static Vec Load(const uint16_t* from) { return _mm512_cvtph_ps(ReadAs<__m256i>(from)); }
  static void Store(uint16_t* to, Vec v) {
    WriteAs(to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#elif FW_VECTOR_BYTES == 32
  static Vec Load(const uint16_t* from) { return _mm256_cvtph_ps(ReadAs<__m128i>(from)); }
  static void Store(uint16_t* to, Vec v) {
    WriteAs(to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  // Exponent and fraction move up 13 bits; multiplying by 2^112 corrects the bias, subnormals too.
  static Vec Load(const uint16_t* from) {
    const VecBits half = __builtin_convertvector(ReadAs<VecHalf>(from), VecBits);
    const VecBits magnitude = (half & 0x7fff) << 13;
    const VecBits scaled = Bits<VecBits>(Bits<Vec>(magnitude) * 0x1p112f);
    const VecBits special = magnitude | 0x7f800000u;
    const VecBits value = (half & 0x7c00) == 0x7c00 ? special : scaled;
    return Bits<Vec>(value | (half & 0x8000) << 16);
  }
  static void Store(uint16_t* to, Vec v) {
    const VecBits bits = Bits<VecBits>(v);
    const VecBits magnitude = bits & 0x7fffffffu;
    const VecBits odd = (magnitude >> 13) & 1;
    const VecBits normal = (magnitude - (112u << 23) + 0xfff + odd) >> 13;
    // 0.5 as a float has a unit of 2^-24, that of a subnormal half: the addition rounds for us.
    const VecBits subnormal = Bits<VecBits>(Bits<Vec>(magnitude) + 0.5f) - 0x3f000000u;
    VecBits half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x47800000u ? VecBits{} + 0x7c00u : half;
    half = magnitude > 0x7f800000u ? VecBits{} + 0x7e00u : half;
    half |= (bits >> 16) & 0x8000u;
    WriteAs(to, __builtin_convertvector(half, VecHalf));
  }
#endif
};

struct BFloat16 {
  typedef uint16_t Storage;
  static Vec Load(const uint16_t* from) {
    return Bits<Vec>(__builtin_convertvector(ReadAs<VecHalf>(from), VecBits) << 16);
  }
  static void Store(uint16_t* to, Vec v) {
    const VecBits bits = Bits<VecBits>(v);
    const VecBits rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    const VecBits quiet = (bits >> 16) | 0x40u;
    const VecBits half = v != v ? quiet : rounded;
    WriteAs(to, __builtin_convertvector(half, VecHalf));
  }
};

// The first n lanes, the others zero; and the first n lanes to memory.
template <class E>
inline Vec LoadPart(const typename E::Storage* from, int64_t n) {
  assert(0 <= n && n <= kLanes);
  typename E::Storage part[kLanes] = {};
  __builtin_memcpy(part, from, static_cast<unsigned long>(n) * sizeof(*from));
  return E::Load(part);
}

template <class E>
inline void StorePart(typename E::Storage* to, Vec v, int64_t n) {
  assert(0 <= n && n <= kLanes);
  typename E::Storage part[kLanes];
  E::Store(part, v);
  __builtin_memcpy(to, part, static_cast<unsigned long>(n) * sizeof(*to));
}

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }

// Runs body through exec's pool, or here when it has none.
inline void Parallel(const FwExec* exec, int64_t count, int64_t grain, FwBody body, void* context) {
  if (count <= 0) return;
  if (exec->parallel_for == nullptr) {
    body(0, count, context);
  } else {
    exec->parallel_for(0, count, grain, body, context);
  }
}

// Rows for one thread at least, so that each has about 16K elements of work.
inline int64_t RowGrain(int64_t row) { return Most(1, 16384 / Most(1, row)); }

// The instance of a body for a dtype.
inline FwBody ForDtype(int32_t dtype, FwBody f32, FwBody f16, FwBody bf16) {
  assert(FW_FLOAT32 <= dtype && dtype <= FW_BFLOAT16);
  return dtype == FW_FLOAT32 ? f32 : dtype == FW_FLOAT16 ? f16 : bf16;
}

}  // namespace
