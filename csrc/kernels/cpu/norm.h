// rms_norm, fused_add_rms_norm and silu_and_mul: rows of one tensor, a row by one thread.
#pragma once

#include "kernels/cpu/vec.h"

namespace {

// Sums of squares in four vectors, so that additions overlap and the error stays small.
struct SquareSum {
  Vec part[4] = {};
  void Add(Vec v, int64_t step) { part[step & 3] += v * v; }
  float Total() const { return SumLanes((part[0] + part[1]) + (part[2] + part[3])); }
};

template <class E>
float SumOfSquares(const typename E::Storage* x, int64_t hidden) {
  SquareSum sum;
  int64_t i = 0;
  for (; i + 4 * kLanes <= hidden; i += 4 * kLanes) {
    for (int64_t u = 0; u < 4; ++u) sum.Add(E::Load(x + i + u * kLanes), u);
  }
  for (; i + kLanes <= hidden; i += kLanes) sum.Add(E::Load(x + i), 0);
  if (i < hidden) sum.Add(LoadPart<E>(x + i, hidden - i), 1);
  return sum.Total();
}

// residual += x, rounded to E; the sum of the rounded values' squares.
template <class E>
float AddAndSquare(typename E::Storage* residual, const typename E::Storage* x, int64_t hidden) {
  SquareSum sum;
  int64_t i = 0;
  for (int64_t step = 0; i + kLanes <= hidden; i += kLanes, ++step) {
    E::Store(residual + i, E::Load(residual + i) + E::Load(x + i));
    sum.Add(E::Load(residual + i), step);
  }
  if (i < hidden) {
    const int64_t n = hidden - i;
    StorePart<E>(residual + i, LoadPart<E>(residual + i, n) + LoadPart<E>(x + i, n), n);
    sum.Add(LoadPart<E>(residual + i, n), 1);
  }
  return sum.Total();
}

template <class E>
void ScaleRow(typename E::Storage* out, const typename E::Storage* x,
              const typename E::Storage* weight, float scale, int64_t hidden) {
  const Vec factor = Broadcast(scale);
  int64_t i = 0;
  for (; i + kLanes <= hidden; i += kLanes) {
    E::Store(out + i, E::Load(x + i) * factor * E::Load(weight + i));
  }
  if (i < hidden) {
    const int64_t n = hidden - i;
    StorePart<E>(out + i, LoadPart<E>(x + i, n) * factor * LoadPart<E>(weight + i, n), n);
  }
}

inline float InverseRms(float squares, int64_t hidden, float eps) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(hidden) + eps);
}

template <class E>
void RmsNormRows(int64_t begin, int64_t end, void* context) {
  typedef typename E::Storage T;
  const FwRmsNormArgs& a = *static_cast<const FwRmsNormArgs*>(context);
  for (int64_t t = begin; t < end; ++t) {
    const T* x = static_cast<const T*>(a.x) + t * a.x_stride;
    const float scale = InverseRms(SumOfSquares<E>(x, a.hidden), a.hidden, a.eps);
    ScaleRow<E>(static_cast<T*>(a.out) + t * a.out_stride, x, static_cast<const T*>(a.weight),
                scale, a.hidden);
  }
}

template <class E>
void FusedAddRmsNormRows(int64_t begin, int64_t end, void* context) {
  typedef typename E::Storage T;
  const FwFusedAddRmsNormArgs& a = *static_cast<const FwFusedAddRmsNormArgs*>(context);
  for (int64_t t = begin; t < end; ++t) {
    T* x = static_cast<T*>(a.x) + t * a.x_stride;
    T* residual = static_cast<T*>(a.residual) + t * a.residual_stride;
    const float scale = InverseRms(AddAndSquare<E>(residual, x, a.hidden), a.hidden, a.eps);
    ScaleRow<E>(x, residual, static_cast<const T*>(a.weight), scale, a.hidden);
  }
}

inline Vec SiluAndMul(Vec gate, Vec up) { return gate / (1.0f + Exp(-gate)) * up; }

template <class E>
void SiluAndMulRows(int64_t begin, int64_t end, void* context) {
  typedef typename E::Storage T;
  const FwSiluAndMulArgs& a = *static_cast<const FwSiluAndMulArgs*>(context);
  for (int64_t t = begin; t < end; ++t) {
    const T* gate = static_cast<const T*>(a.x) + t * a.x_stride;
    const T* up = gate + a.size;
    T* out = static_cast<T*>(a.out) + t * a.out_stride;
    int64_t i = 0;
    for (; i + kLanes <= a.size; i += kLanes) {
      E::Store(out + i, SiluAndMul(E::Load(gate + i), E::Load(up + i)));
    }
    if (i < a.size) {
      const int64_t n = a.size - i;
      StorePart<E>(out + i, SiluAndMul(LoadPart<E>(gate + i, n), LoadPart<E>(up + i, n)), n);
    }
  }
}

void RmsNorm(const FwExec* exec, const FwRmsNormArgs* args) {
  FwRmsNormArgs a = *args;
  Parallel(exec, a.tokens, RowGrain(a.hidden),
           ForDtype(a.dtype, RmsNormRows<Float32>, RmsNormRows<Float16>, RmsNormRows<BFloat16>),
           &a);
}

void FusedAddRmsNorm(const FwExec* exec, const FwFusedAddRmsNormArgs* args) {
  FwFusedAddRmsNormArgs a = *args;
  Parallel(exec, a.tokens, RowGrain(a.hidden),
           ForDtype(a.dtype, FusedAddRmsNormRows<Float32>, FusedAddRmsNormRows<Float16>,
                    FusedAddRmsNormRows<BFloat16>),
           &a);
}

void SiluAndMul(const FwExec* exec, const FwSiluAndMulArgs* args) {
  FwSiluAndMulArgs a = *args;
  Parallel(
      exec, a.tokens, RowGrain(2 * a.size),
      ForDtype(a.dtype, SiluAndMulRows<Float32>, SiluAndMulRows<Float16>, SiluAndMulRows<BFloat16>),
      &a);
}

}  // namespace
