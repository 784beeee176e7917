// silu_and_mul: grid (tokens, parts of the row); one rounding, at the end.
#include "kernels/common.cuh"

namespace fw {

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

template <int N, typename T>
__device__ __forceinline__ void silu_and_mul_row(T* out, const T* gate, const T* up, int64_t size) {
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  const int64_t step = int64_t{gridDim.y} * blockDim.x * N;
  for (int64_t i = first; i < size; i += step) {
    Pack<T, N> row = load_constant<N>(gate + i);
    const Pack<T, N> factors = load_constant<N>(up + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      row.at[j] = from_float<T>(silu(to_float(row.at[j])) * to_float(factors.at[j]));
    }
    store(out + i, row);
  }
}

template <typename T>
__device__ __forceinline__ void silu_and_mul(const FwSiluAndMulArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* x = static_cast<const T*>(args.x);
  const bool wide =
      is_wide(out, args.out_stride) && is_wide(x, args.x_stride) && args.size % kWide<T> == 0;
  const int64_t token = blockIdx.x;
  out += token * args.out_stride;
  x += token * args.x_stride;
  if (wide) {
    silu_and_mul_row<kWide<T>>(out, x, x + args.size, args.size);
  } else {
    silu_and_mul_row<1>(out, x, x + args.size, args.size);
  }
}

}  // namespace fw

FW_KERNEL(fw_silu_and_mul_f32, kActivationThreads, FwSiluAndMulArgs, fw::silu_and_mul<float>)
FW_KERNEL(fw_silu_and_mul_f16, kActivationThreads, FwSiluAndMulArgs, fw::silu_and_mul<__half>)
FW_KERNEL(fw_silu_and_mul_bf16, kActivationThreads, FwSiluAndMulArgs, fw::silu_and_mul<fw::bf16>)
