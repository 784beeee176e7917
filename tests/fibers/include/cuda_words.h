// CUDA's words for a host compiler: force-included before a .cu file, it makes each kernel a plain
// function that runs as many fibers. Only what the kernels of csrc/kernels use.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#include "emulation.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
  unsigned int x, y, z;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
using dim3 = uint3;

namespace fibers {

// What the running fiber sees; the scheduler keeps it.
struct Place {
  uint3 thread;
  dim3 block_size, block, grid_size;
};
extern Place place;

// Barriers: return when all threads of the block or warp have come to the same line.
void block_barrier(const char* file, int line);
uint64_t warp_exchange(unsigned int mask, uint64_t value, int from_lane, const char* file,
                       int line);
int lane();

// The block's shared variable that `site` declares: the same memory for all its threads, poisoned
// (all bits set: a NaN as any float) when the block starts.
void* shared_variable(const void* site, size_t bytes, size_t alignment);

template <typename T>
T shuffle(unsigned int mask, T value, int from_lane, const char* file, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = warp_exchange(mask, bits, from_lane, file, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Runs a kernel from an array of pointers to its parameters, whose types are its own.
template <auto kKernel>
struct Trampoline;
template <typename... Params, void (*kKernel)(Params...)>
struct Trampoline<kKernel> {
  static constexpr uint16_t kSizes[] = {sizeof(Params)...};

  static void run(void** params) { run(params, std::index_sequence_for<Params...>()); }
  template <size_t... kIndex>
  static void run(void** params, std::index_sequence<kIndex...>) {
    kKernel(*static_cast<std::remove_const_t<Params>*>(params[kIndex])...);
  }
  static void describe(FwEmulKernel* kernel) {
    *kernel = {&Trampoline::run, sizeof...(Params), kSizes};
  }
};

}  // namespace fibers

#define threadIdx (fibers::place.thread)
#define blockIdx (fibers::place.block)
#define blockDim (fibers::place.block_size)
#define gridDim (fibers::place.grid_size)

#define __syncthreads() fibers::block_barrier(__FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, lane_mask) \
  fibers::shuffle(mask, value, fibers::lane() ^ (lane_mask), __FILE__, __LINE__)

#define FW_SHARED(Type, name)        \
  static const char name##_site = 0; \
  Type& name =                       \
      *static_cast<Type*>(fibers::shared_variable(&name##_site, sizeof(Type), alignof(Type)))

#define FW_EXPORT_KERNEL(name)                           \
  extern "C" void fw_emul_##name(FwEmulKernel* kernel);  \
  extern "C" void fw_emul_##name(FwEmulKernel* kernel) { \
    fibers::Trampoline<&name>::describe(kernel);         \
  }

template <typename T>
inline T __ldg(const T* from) {
  return *from;
}

inline float __int_as_float(int bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
