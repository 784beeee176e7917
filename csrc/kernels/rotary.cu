// rotary_embedding in place: one block a token, threads over (pairs, heads). A position outside the
// table reads nothing from it and makes the rotated elements of that token NaN.
#include "kernels/common.cuh"

namespace fw {

// Rotates the heads of one token. cos_sin is the token's row of the table, null for NaN.
template <typename T>
__device__ __forceinline__ void rotate_heads(T* row, int64_t heads, int64_t head_stride,
                                             const float* cos_sin, int64_t pairs, bool neox) {
  for (int64_t head = threadIdx.y; head < heads; head += blockDim.y) {
    T* base = row + head * head_stride;
    for (int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
      T* first = base + (neox ? pair : 2 * pair);
      T* second = neox ? first + pairs : first + 1;
      const float cosine = cos_sin == nullptr ? not_a_number() : __ldg(cos_sin + pair);
      const float sine = cos_sin == nullptr ? not_a_number() : __ldg(cos_sin + pairs + pair);
      const float a = to_float(*first);
      const float b = to_float(*second);
      *first = from_float<T>(a * cosine - b * sine);
      *second = from_float<T>(b * cosine + a * sine);
    }
  }
}

template <typename T>
__device__ __forceinline__ void rotary_embedding(const FwRotaryEmbeddingArgs& args) {
  const int64_t token = blockIdx.x;
  const int64_t position = __ldg(args.positions + token);
  const bool inside = position >= 0 && position < args.max_position;
  const float* cos_sin = inside ? args.cos_sin + position * args.rotary_size : nullptr;
  const int64_t pairs = args.rotary_size / 2;
  const bool neox = args.neox != 0;
  rotate_heads(static_cast<T*>(args.query) + token * args.query_stride, args.query_heads,
               args.query_head_stride, cos_sin, pairs, neox);
  rotate_heads(static_cast<T*>(args.key) + token * args.key_stride, args.key_heads,
               args.key_head_stride, cos_sin, pairs, neox);
}

}  // namespace fw

FW_KERNEL(fw_rotary_embedding_f32, kRotaryThreads, FwRotaryEmbeddingArgs,
          fw::rotary_embedding<float>)
FW_KERNEL(fw_rotary_embedding_f16, kRotaryThreads, FwRotaryEmbeddingArgs,
          fw::rotary_embedding<__half>)
FW_KERNEL(fw_rotary_embedding_bf16, kRotaryThreads, FwRotaryEmbeddingArgs,
          fw::rotary_embedding<fw::bf16>)
