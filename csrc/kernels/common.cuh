// What every kernel needs: dtypes, 128-bit vectors, warp and block sums, and the macro that names
// an instantiation. Compiled by NVRTC, nvcc and, under an emulation of CUDA's words, a host
// compiler.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "abi/ops.h"
#include "kernels/shapes.h"

// One variable in the block's shared memory. The emulation hands out poisoned memory instead.
#ifndef FW_SHARED
#define FW_SHARED(Type, name) __shared__ Type name
#endif

// The emulation exports a trampoline for each kernel.
#ifndef FW_EXPORT_KERNEL
#define FW_EXPORT_KERNEL(name)
#endif

// One kernel: the last argument is a device function of the record. The extern "C" name is what
// launch tables and audits look up; it also is the external symbol without which NVRTC 12.1 makes
// other bytes on every run (cuda_bf16.h draws in variables that are named after the process). One
// block a multiprocessor is asked for, so that ptxas takes the registers it needs and spills none.
#define FW_KERNEL(name, max_threads, Args, ...)                                        \
  extern "C" __global__ void __launch_bounds__(max_threads, 1) name(const Args args) { \
    __VA_ARGS__(args);                                                                 \
  }                                                                                    \
  FW_EXPORT_KERNEL(name)

namespace fw {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}

__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fc00000); }

// Elements in one 128-bit vector.
template <typename T>
constexpr int kWide = kVectorBytes / static_cast<int>(sizeof(T));

// N neighbouring elements: kWide<T> of them, read and written at once, or one.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  static_assert(N == 1 || N == kWide<T>);
  T at[N];
};

// Reads memory that the kernel also writes.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
  Pack<T, N> pack;
  if constexpr (N == 1) {
    pack.at[0] = *from;
  } else {
    const uint4 bits = *reinterpret_cast<const uint4*>(from);
    memcpy(&pack, &bits, sizeof bits);
  }
  return pack;
}

// Reads memory that nothing writes while the kernel runs, through the read-only path.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_constant(const T* from) {
  Pack<T, N> pack;
  if constexpr (N == 1) {
    pack.at[0] = __ldg(from);
  } else {
    const uint4 bits = __ldg(reinterpret_cast<const uint4*>(from));
    memcpy(&pack, &bits, sizeof bits);
  }
  return pack;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
  if constexpr (N == 1) {
    *to = pack.at[0];
  } else {
    uint4 bits;
    memcpy(&bits, &pack, sizeof bits);
    *reinterpret_cast<uint4*>(to) = bits;
  }
}

// Whether rows of `stride` elements that start at `pointer` can all be read by 128-bit loads.
template <typename T>
__device__ __forceinline__ bool is_wide(const T* pointer, int64_t stride) {
  return reinterpret_cast<uint64_t>(pointer) % kVectorBytes == 0 && stride % kWide<T> == 0;
}

// The sum over the warp, the same bits in every lane.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, mask);
  }
  return value;
}

struct WarpSums {
  float at[kWarp];
};

// The sum over a block of whole warps, the same bits in every thread. Once in a kernel: a second
// call would write the shared sums while others still read them.
__device__ __forceinline__ float block_sum(float value) {
  FW_SHARED(WarpSums, sums);
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  value = warp_sum(value);
  if (lane == 0) sums.at[warp] = value;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? sums.at[lane] : 0.0f);
}

}  // namespace fw
