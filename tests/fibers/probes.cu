// Kernels that try the emulation itself: what it must run, and what it must refuse.
#include "kernels/common.cuh"

namespace {

struct Table {
  int at[64];
};

// out[turn] = thread, in the order in which the threads first run.
__device__ void record_order(int* out, int* turn) { out[(*turn)++] = threadIdx.x; }

// Each thread reads what its neighbour wrote before the barrier.
__device__ void pass_on(int* out) {
  FW_SHARED(Table, table);
  table.at[threadIdx.x] = 100 + threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = table.at[(threadIdx.x + 1) % 64];
}

// The first bytes of shared memory as the block finds them, then something else in their place.
__device__ void read_unwritten(int* out) {
  FW_SHARED(Table, table);
  out[blockIdx.x] = table.at[0];
  table.at[0] = 0;
}

__device__ void diverge(int* out, int way) {
  if (way == 0 && threadIdx.x == 5) return;
  if (way == 1 && threadIdx.x % 2 == 0) __syncthreads();
  if (way == 2 && threadIdx.x < 7) {
    *out += static_cast<int>(__shfl_xor_sync(0xffffffffu, 1.0f, 1));
  }
  __syncthreads();
}

struct TooMuch {
  char at[48 * 1024 + 1];
};

__device__ void fill_shared(int* out) {
  FW_SHARED(TooMuch, table);
  *out = table.at[0];
}

}  // namespace

extern "C" __global__ void fw_probe_order(int* out, int* turn) { record_order(out, turn); }
FW_EXPORT_KERNEL(fw_probe_order)
extern "C" __global__ void fw_probe_pass(int* out) { pass_on(out); }
FW_EXPORT_KERNEL(fw_probe_pass)
extern "C" __global__ void fw_probe_unwritten(int* out) { read_unwritten(out); }
FW_EXPORT_KERNEL(fw_probe_unwritten)
extern "C" __global__ void fw_probe_diverge(int* out, int way) { diverge(out, way); }
FW_EXPORT_KERNEL(fw_probe_diverge)
extern "C" __global__ void fw_probe_shared(int* out) { fill_shared(out); }
FW_EXPORT_KERNEL(fw_probe_shared)
