// rms_norm and fused_add_rms_norm: one block a token; sums and scaling in float32.
#include "kernels/common.cuh"

namespace fw {

template <typename T, int N>
__device__ __forceinline__ float sum_of_squares(const Pack<T, N>& pack) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float value = to_float(pack.at[i]);
    sum += value * value;
  }
  return sum;
}

// out = in * scale * weight. out may be in: an element is read before it is written.
template <int N, typename T>
__device__ __forceinline__ void scale_row(T* out, const T* in, const T* weight, float scale,
                                          int64_t hidden) {
  for (int64_t i = int64_t{threadIdx.x} * N; i < hidden; i += int64_t{blockDim.x} * N) {
    Pack<T, N> row = load<N>(in + i);
    const Pack<T, N> factors = load_constant<N>(weight + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      row.at[j] = from_float<T>(to_float(row.at[j]) * scale * to_float(factors.at[j]));
    }
    store(out + i, row);
  }
}

__device__ __forceinline__ float inverse_rms(float sum, int64_t hidden, float eps) {
  return 1.0f / sqrtf(block_sum(sum) / static_cast<float>(hidden) + eps);
}

template <int N, typename T>
__device__ __forceinline__ void norm_row(T* out, const T* x, const T* weight, int64_t hidden,
                                         float eps) {
  float sum = 0.0f;
  for (int64_t i = int64_t{threadIdx.x} * N; i < hidden; i += int64_t{blockDim.x} * N) {
    sum += sum_of_squares(load<N>(x + i));
  }
  scale_row<N>(out, x, weight, inverse_rms(sum, hidden, eps), hidden);
}

template <typename T>
__device__ __forceinline__ void rms_norm(const FwRmsNormArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* x = static_cast<const T*>(args.x);
  const T* weight = static_cast<const T*>(args.weight);
  const bool wide =
      is_wide(out, args.out_stride) && is_wide(x, args.x_stride) && is_wide(weight, args.hidden);
  const int64_t token = blockIdx.x;
  out += token * args.out_stride;
  x += token * args.x_stride;
  if (wide) {
    norm_row<kWide<T>>(out, x, weight, args.hidden, args.eps);
  } else {
    norm_row<1>(out, x, weight, args.hidden, args.eps);
  }
}

// residual += x, rounded to T; the rounded values are what is normalised into x. Each thread reads
// back only what it wrote itself.
template <int N, typename T>
__device__ __forceinline__ void add_norm_row(T* x, T* residual, const T* weight, int64_t hidden,
                                             float eps) {
  float sum = 0.0f;
  for (int64_t i = int64_t{threadIdx.x} * N; i < hidden; i += int64_t{blockDim.x} * N) {
    Pack<T, N> total = load<N>(residual + i);
    const Pack<T, N> addend = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      total.at[j] = from_float<T>(to_float(total.at[j]) + to_float(addend.at[j]));
    }
    store(residual + i, total);
    sum += sum_of_squares(total);
  }
  scale_row<N>(x, residual, weight, inverse_rms(sum, hidden, eps), hidden);
}

template <typename T>
__device__ __forceinline__ void fused_add_rms_norm(const FwFusedAddRmsNormArgs& args) {
  T* x = static_cast<T*>(args.x);
  T* residual = static_cast<T*>(args.residual);
  const T* weight = static_cast<const T*>(args.weight);
  const bool wide = is_wide(x, args.x_stride) && is_wide(residual, args.residual_stride) &&
                    is_wide(weight, args.hidden);
  const int64_t token = blockIdx.x;
  x += token * args.x_stride;
  residual += token * args.residual_stride;
  if (wide) {
    add_norm_row<kWide<T>>(x, residual, weight, args.hidden, args.eps);
  } else {
    add_norm_row<1>(x, residual, weight, args.hidden, args.eps);
  }
}

}  // namespace fw

FW_KERNEL(fw_rms_norm_f32, kNormMaxThreads, FwRmsNormArgs, fw::rms_norm<float>)
FW_KERNEL(fw_rms_norm_f16, kNormMaxThreads, FwRmsNormArgs, fw::rms_norm<__half>)
FW_KERNEL(fw_rms_norm_bf16, kNormMaxThreads, FwRmsNormArgs, fw::rms_norm<fw::bf16>)
FW_KERNEL(fw_fused_add_rms_norm_f32, kNormMaxThreads, FwFusedAddRmsNormArgs,
          fw::fused_add_rms_norm<float>)
FW_KERNEL(fw_fused_add_rms_norm_f16, kNormMaxThreads, FwFusedAddRmsNormArgs,
          fw::fused_add_rms_norm<__half>)
FW_KERNEL(fw_fused_add_rms_norm_bf16, kNormMaxThreads, FwFusedAddRmsNormArgs,
          fw::fused_add_rms_norm<fw::bf16>)
