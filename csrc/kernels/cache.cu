// reshape_and_cache: one block a token, threads over (elements of a head, heads). A slot outside
// the cache writes nothing.
#include "kernels/common.cuh"

namespace fw {

template <int N, typename T>
__device__ __forceinline__ void copy_heads(T* to, const T* from, int64_t from_head_stride,
                                           int64_t heads, int64_t head_size) {
  for (int64_t head = threadIdx.y; head < heads; head += blockDim.y) {
    for (int64_t i = int64_t{threadIdx.x} * N; i < head_size; i += int64_t{blockDim.x} * N) {
      store(to + head * head_size + i, load_constant<N>(from + head * from_head_stride + i));
    }
  }
}

// Copies the token's row into its slot of one cache, by 128-bit vectors where all rows allow it.
template <typename T>
__device__ __forceinline__ void cache_row(void* cache, const void* rows, int64_t slot,
                                          int64_t row_stride, int64_t head_stride, int64_t kv_heads,
                                          int64_t head_size) {
  const T* from = static_cast<const T*>(rows);
  T* to = static_cast<T*>(cache);
  const bool wide =
      is_wide(to, head_size) && is_wide(from, row_stride) && is_wide(from, head_stride);
  from += int64_t{blockIdx.x} * row_stride;
  to += slot * kv_heads * head_size;
  if (wide) {
    copy_heads<kWide<T>>(to, from, head_stride, kv_heads, head_size);
  } else {
    copy_heads<1>(to, from, head_stride, kv_heads, head_size);
  }
}

template <typename T>
__device__ __forceinline__ void reshape_and_cache(const FwReshapeAndCacheArgs& args) {
  const int64_t slot = __ldg(args.slot_mapping + blockIdx.x);
  if (slot < 0 || (slot >> args.block_size_log2) >= args.blocks) return;
  cache_row<T>(args.key_cache, args.key, slot, args.key_stride, args.key_head_stride, args.kv_heads,
               args.head_size);
  cache_row<T>(args.value_cache, args.value, slot, args.value_stride, args.value_head_stride,
               args.kv_heads, args.head_size);
}

}  // namespace fw

FW_KERNEL(fw_reshape_and_cache_f32, kCacheThreads, FwReshapeAndCacheArgs,
          fw::reshape_and_cache<float>)
FW_KERNEL(fw_reshape_and_cache_f16, kCacheThreads, FwReshapeAndCacheArgs,
          fw::reshape_and_cache<__half>)
FW_KERNEL(fw_reshape_and_cache_bf16, kCacheThreads, FwReshapeAndCacheArgs,
          fw::reshape_and_cache<fw::bf16>)
