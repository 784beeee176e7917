// paged_attention: one block a token, query head and split of the context, any context length.
//
// A few lanes (a group) share one context token: each holds the same 128-bit chunks of the query,
// the key and the value, so that a warp reads whole sectors. Every group keeps its own running
// maximum, sum and output (an online softmax in base 2); they are joined at the end through shared
// memory. With several splits a second kernel joins the blocks' results.
//
// A block number outside the cache, or a context longer than the block table, reads nothing there
// and makes the output row NaN. A token that belongs to no sequence, or that has nothing to attend
// to, gets zeros.
#include "kernels/common.cuh"

namespace fw {

// Below every score, but finite: differences of maxima never are inf - inf.
__device__ __forceinline__ float lowest() { return -3.402823466e+38f; }

// The fewest lanes, a power of two, that leave each at most five whole chunks of a head: more
// chunks cost registers, fewer cost shuffles.
__host__ __device__ constexpr int lanes_for(int chunks) {
  int lanes = 1;
  while (chunks % lanes != 0 || chunks / lanes > 5) lanes *= 2;
  return lanes;
}

template <typename T, int kHeadSize>
struct Shape {
  enum : int {
    kChunk = kWide<T>,
    kLanes = lanes_for(kHeadSize / kChunk),
    kChunks = kHeadSize / kChunk / kLanes,  // of each lane
    kElements = kChunks * kChunk,           // of each lane
    kGroups = kAttentionThreads / kLanes,   // context tokens at a time
  };
  static_assert(kHeadSize % kChunk == 0 && int{kLanes} <= int{kWarp});
};

// Which part of which context a block reads.
struct Context {
  int64_t sequence;
  uint32_t first, last;  // positions first .. last - 1
};

// The last sequence that starts at or before the token; its queries may end before it.
__device__ __forceinline__ int64_t find_sequence(const int32_t* query_start_loc, int64_t sequences,
                                                 int64_t token) {
  int64_t low = 0, high = sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (__ldg(query_start_loc + middle) <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The share of this split: equal parts of the visible context, rounded up to whole steps.
__device__ __forceinline__ Context find_context(const FwPagedAttentionArgs& args, int64_t token,
                                                uint32_t split, uint32_t step) {
  if (args.sequences <= 0) return {0, 0, 0};
  const int64_t sequence = find_sequence(args.query_start_loc, args.sequences, token);
  const int64_t start = __ldg(args.query_start_loc + sequence);
  const int64_t stop = __ldg(args.query_start_loc + sequence + 1);
  if (token < start || token >= stop) return {0, 0, 0};
  const int64_t end = __ldg(args.seq_lens + sequence) - stop + token + 1;
  const int64_t begin = args.window > 0 && end > args.window ? end - args.window : 0;
  if (end <= begin) return {0, 0, 0};
  const uint32_t length = static_cast<uint32_t>(end - begin);
  const uint32_t splits = static_cast<uint32_t>(args.splits);
  const uint32_t share = ((length - 1) / splits / step + 1) * step;
  const int64_t first = begin + int64_t{split} * share;
  const int64_t last = first + share < end ? first + share : end;
  if (first >= last) return {0, 0, 0};
  return {sequence, static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

// One group's softmax so far: out and sum are relative to 2^max.
template <int N>
struct Running {
  float max, sum;
  float out[N];

  __device__ __forceinline__ void rescale(float to) {
    const float factor = exp2f(max - to);
    max = to;
    sum *= factor;
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] *= factor;
  }

  template <typename T, int kChunk, int kChunks>
  __device__ __forceinline__ void add(float weight, const Pack<T, kChunk> (&value)[kChunks]) {
    sum += weight;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        out[chunk * kChunk + i] += weight * to_float(value[chunk].at[i]);
      }
    }
  }
};

// What the groups leave for each other. A row's padding keeps neighbouring groups off each other's
// memory banks.
template <typename T, int kHeadSize>
struct alignas(16) GroupResults {
  using S = Shape<T, kHeadSize>;
  float out[S::kGroups][kHeadSize + 4];
  float max[S::kGroups], sum[S::kGroups];
};

// The lane's chunks of the query, times scale and log2(e): scores are exponents of two.
template <typename T, int kHeadSize>
__device__ __forceinline__ void load_query(float* query, const FwPagedAttentionArgs& args,
                                           int64_t token, int64_t head, int lane) {
  using S = Shape<T, kHeadSize>;
  const T* rows = static_cast<const T*>(args.query);
  const bool wide = is_wide(rows, args.query_stride) && is_wide(rows, args.query_head_stride);
  const T* row = rows + token * args.query_stride + head * args.query_head_stride;
  const float factor = args.scale * 1.4426950408889634f;  // log2(e)
#pragma unroll
  for (int chunk = 0; chunk < S::kChunks; ++chunk) {
    const T* from = row + (chunk * S::kLanes + lane) * S::kChunk;
    Pack<T, S::kChunk> pack;
    if (wide) {
      pack = load_constant<S::kChunk>(from);
    } else {
#pragma unroll
      for (int i = 0; i < S::kChunk; ++i) pack.at[i] = __ldg(from + i);
    }
#pragma unroll
    for (int i = 0; i < S::kChunk; ++i) {
      query[chunk * S::kChunk + i] = to_float(pack.at[i]) * factor;
    }
  }
}

// The score of the group's context token, the same bits in each of its lanes.
template <typename T, int kHeadSize, typename Chunks>
__device__ __forceinline__ float score_of(const float* query, const Chunks& key) {
  using S = Shape<T, kHeadSize>;
  float score = 0.0f;
#pragma unroll
  for (int chunk = 0; chunk < S::kChunks; ++chunk) {
#pragma unroll
    for (int i = 0; i < S::kChunk; ++i) {
      score += query[chunk * S::kChunk + i] * to_float(key[chunk].at[i]);
    }
  }
#pragma unroll
  for (int mask = S::kLanes / 2; mask > 0; mask /= 2) {
    score += __shfl_xor_sync(0xffffffffu, score, mask);
  }
  return score;
}

// Reads the block's context and leaves in every group its softmax over its share. All threads make
// the same number of steps, since shuffles need whole warps; a group without a token in a step, or
// whose block is lost, adds zeros with weight 0.
template <typename T, int kHeadSize>
__device__ __forceinline__ void attend(Running<Shape<T, kHeadSize>::kElements>& running,
                                       const float* query, const FwPagedAttentionArgs& args,
                                       const Context& context, int64_t kv_head) {
  using S = Shape<T, kHeadSize>;
  const uint32_t group = threadIdx.x / S::kLanes;
  const uint32_t lane = threadIdx.x % S::kLanes;
  const int32_t* table = args.block_table + context.sequence * args.block_table_stride;
  const uint32_t block_mask = (1u << args.block_size_log2) - 1;
  const int64_t in_row = kv_head * kHeadSize + lane * S::kChunk;
  const T* keys = static_cast<const T*>(args.key_cache) + in_row;
  const T* values = static_cast<const T*>(args.value_cache) + in_row;
  const auto block_at = [&](uint32_t position) {
    const uint32_t entry = position >> args.block_size_log2;
    return position < context.last && entry < args.max_blocks ? __ldg(table + entry) : -1;
  };
  bool lost = false;
  int32_t next = block_at(context.first + group);
#pragma unroll 1
  for (uint32_t start = context.first; start < context.last; start += S::kGroups) {
    const uint32_t position = start + group;
    const int32_t block = next;
    next = block_at(position + S::kGroups);
    const bool inside = block >= 0 && block < args.blocks;
    lost |= position < context.last && !inside;

    Pack<T, S::kChunk> key[S::kChunks] = {}, value[S::kChunks] = {};
    if (inside) {
      const int64_t slot = (int64_t{block} << args.block_size_log2) + (position & block_mask);
      const int64_t offset = slot * args.kv_heads * kHeadSize;
#pragma unroll
      for (int chunk = 0; chunk < S::kChunks; ++chunk) {
        key[chunk] = load_constant<S::kChunk>(keys + offset + chunk * S::kLanes * S::kChunk);
        value[chunk] = load_constant<S::kChunk>(values + offset + chunk * S::kLanes * S::kChunk);
      }
    }
    const float score = score_of<T, kHeadSize>(query, key);
    if (inside && score > running.max) running.rescale(score);
    running.add(inside ? exp2f(score - running.max) : 0.0f, value);
  }
  if (lost) running.sum = not_a_number();
}

// sum is 0 where nothing was attended to and NaN where a block was lost.
__device__ __forceinline__ float normalise(float out, float sum) {
  return sum == 0.0f ? 0.0f : out / sum;
}

template <typename T, int kHeadSize>
__device__ __forceinline__ void share_result(
    GroupResults<T, kHeadSize>& results, const Running<Shape<T, kHeadSize>::kElements>& running) {
  using S = Shape<T, kHeadSize>;
  const int group = threadIdx.x / S::kLanes;
  const int lane = threadIdx.x % S::kLanes;
#pragma unroll
  for (int chunk = 0; chunk < S::kChunks; ++chunk) {
#pragma unroll
    for (int i = 0; i < S::kChunk; ++i) {
      results.out[group][(chunk * S::kLanes + lane) * S::kChunk + i] =
          running.out[chunk * S::kChunk + i];
    }
  }
  if (lane == 0) {
    results.max[group] = running.max;
    results.sum[group] = running.sum;
  }
}

// Joins the groups: into the output row, or, with several splits, into this split's place among the
// partial results.
template <typename T, int kHeadSize>
__device__ __forceinline__ void write_result(const GroupResults<T, kHeadSize>& results,
                                             const FwPagedAttentionArgs& args, int64_t token,
                                             int64_t head, int64_t split) {
  constexpr int kGroups = Shape<T, kHeadSize>::kGroups;
  float max = results.max[0];
#pragma unroll 4
  for (int group = 1; group < kGroups; ++group) max = fmaxf(max, results.max[group]);
  T* row = static_cast<T*>(args.out) + token * args.out_stride + head * args.out_head_stride;
  const int64_t partial = (token * args.heads + head) * args.splits + split;
#pragma unroll 1
  for (int i = threadIdx.x; i < kHeadSize; i += kAttentionThreads) {
    float out = 0.0f, sum = 0.0f;
#pragma unroll 4
    for (int group = 0; group < kGroups; ++group) {
      const float factor = exp2f(results.max[group] - max);
      sum += factor * results.sum[group];
      out += factor * results.out[group][i];
    }
    if (args.splits == 1) {
      row[i] = from_float<T>(normalise(out, sum));
    } else {
      args.partial_out[partial * kHeadSize + i] = out;
      if (i == 0) {
        args.partial_max[partial] = max;
        args.partial_sum[partial] = sum;
      }
    }
  }
}

template <typename T, int kHeadSize>
__device__ __forceinline__ void paged_attention(const FwPagedAttentionArgs& args) {
  using S = Shape<T, kHeadSize>;
  using Results = GroupResults<T, kHeadSize>;
  FW_SHARED(Results, results);
  const uint32_t heads = static_cast<uint32_t>(args.heads);
  const uint32_t token = blockIdx.x / heads;
  const uint32_t head = blockIdx.x % heads;
  const uint32_t kv_head = head / (heads / static_cast<uint32_t>(args.kv_heads));
  Running<S::kElements> running = {lowest(), 0.0f, {}};
  const Context context = find_context(args, token, blockIdx.y, S::kGroups);
  if (context.first < context.last) {
    float query[S::kElements];
    load_query<T, kHeadSize>(query, args, token, head, threadIdx.x % S::kLanes);
    attend<T, kHeadSize>(running, query, args, context, kv_head);
  }
  share_result<T, kHeadSize>(results, running);
  __syncthreads();
  write_result<T, kHeadSize>(results, args, token, head, blockIdx.y);
}

// Joins the splits of one token and head. A split that saw nothing weighs nothing.
template <typename T>
__device__ __forceinline__ void paged_attention_reduce(const FwPagedAttentionArgs& args) {
  const uint32_t heads = static_cast<uint32_t>(args.heads);
  const int64_t token = blockIdx.x / heads;
  const int64_t head = blockIdx.x % heads;
  const int64_t first = int64_t{blockIdx.x} * args.splits;
  float max = lowest();
#pragma unroll 1
  for (int split = 0; split < args.splits; ++split) {
    max = fmaxf(max, __ldg(args.partial_max + first + split));
  }
  T* row = static_cast<T*>(args.out) + token * args.out_stride + head * args.out_head_stride;
  for (int64_t i = threadIdx.x; i < args.head_size; i += kReduceThreads) {
    float out = 0.0f, sum = 0.0f;
#pragma unroll 1
    for (int split = 0; split < args.splits; ++split) {
      const float factor = exp2f(__ldg(args.partial_max + first + split) - max);
      sum += factor * __ldg(args.partial_sum + first + split);
      out += factor * __ldg(args.partial_out + (first + split) * args.head_size + i);
    }
    row[i] = from_float<T>(normalise(out, sum));
  }
}

}  // namespace fw

FW_KERNEL(fw_paged_attention_64_f32, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<float, 64>)
FW_KERNEL(fw_paged_attention_64_f16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<__half, 64>)
FW_KERNEL(fw_paged_attention_64_bf16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<fw::bf16, 64>)
FW_KERNEL(fw_paged_attention_80_f32, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<float, 80>)
FW_KERNEL(fw_paged_attention_80_f16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<__half, 80>)
FW_KERNEL(fw_paged_attention_80_bf16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<fw::bf16, 80>)
FW_KERNEL(fw_paged_attention_96_f32, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<float, 96>)
FW_KERNEL(fw_paged_attention_96_f16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<__half, 96>)
FW_KERNEL(fw_paged_attention_96_bf16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<fw::bf16, 96>)
FW_KERNEL(fw_paged_attention_128_f32, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<float, 128>)
FW_KERNEL(fw_paged_attention_128_f16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<__half, 128>)
FW_KERNEL(fw_paged_attention_128_bf16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<fw::bf16, 128>)
FW_KERNEL(fw_paged_attention_256_f32, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<float, 256>)
FW_KERNEL(fw_paged_attention_256_f16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<__half, 256>)
FW_KERNEL(fw_paged_attention_256_bf16, kAttentionThreads, FwPagedAttentionArgs,
          fw::paged_attention<fw::bf16, 256>)
FW_KERNEL(fw_paged_attention_reduce_f32, kReduceThreads, FwPagedAttentionArgs,
          fw::paged_attention_reduce<float>)
FW_KERNEL(fw_paged_attention_reduce_f16, kReduceThreads, FwPagedAttentionArgs,
          fw::paged_attention_reduce<__half>)
FW_KERNEL(fw_paged_attention_reduce_bf16, kReduceThreads, FwPagedAttentionArgs,
          fw::paged_attention_reduce<fw::bf16>)
