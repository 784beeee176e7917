#include "torch/ops.h"

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "abi/limits.h"
#include "torch/bind.h"
#include "torch/checks.h"

namespace fw {
namespace {

// "64, 80, 96, 128 or 256".
std::string OneOf(std::initializer_list<int64_t> values) {
  std::string text;
  int64_t left = static_cast<int64_t>(values.size());
  for (const int64_t value : values) {
    text += std::to_string(value);
    --left;
    if (left > 0) text += left == 1 ? " or " : ", ";
  }
  return text;
}

// An FwExec with room for a sentence.
class Exec {
 public:
  Exec(int32_t device, void* stream, FwParallelFor parallel_for)
      : exec_{device, 0, stream, parallel_for, error_, sizeof(error_)} {}
  Exec(const Runtime& runtime, const Tensor& tensor)
      : Exec(tensor.cuda ? tensor.device : -1, tensor.cuda ? CurrentStream(tensor.device) : nullptr,
             runtime.parallel_for) {}

  const FwExec* get() const { return &exec_; }
  void Check(int32_t status) const {
    if (status != 0) throw std::runtime_error(error_);
  }

 private:
  char error_[1024] = {};
  FwExec exec_;
};

int32_t BlockSizeLog2(const Call& call, const char* argument, int64_t block_size) {
#define FW_CASE(size, log2) \
  if (block_size == size) return log2;
#define FW_SIZE(size, log2) size,
  FW_BLOCK_SIZES(FW_CASE)
  call.Fail(argument, "must have blocks of " + OneOf({FW_BLOCK_SIZES(FW_SIZE)}) +
                          " tokens (its second dimension), not " + std::to_string(block_size));
#undef FW_CASE
#undef FW_SIZE
}

void CheckHeadSize(const Call& call, const char* argument, int64_t head_size) {
#define FW_CASE(size) \
  if (head_size == size) return;
#define FW_SIZE(size) size,
  FW_HEAD_SIZES(FW_CASE)
  call.Fail(argument, "must have a head size (its last dimension) of " +
                          OneOf({FW_HEAD_SIZES(FW_SIZE)}) + ", not " + std::to_string(head_size));
#undef FW_CASE
#undef FW_SIZE
}

// Both caches: [blocks, block_size, kv_heads, head_size], alike and contiguous.
void CheckCaches(const Call& call, const Tensor& key_cache, const Tensor& value_cache) {
  call.Follows("key_cache", key_cache);
  call.Follows("value_cache", value_cache);
  call.Rank("key_cache", key_cache, 4);
  const int64_t* sizes = key_cache.sizes;
  call.Shape("value_cache", value_cache, {sizes[0], sizes[1], sizes[2], sizes[3]});
  call.Contiguous("key_cache", key_cache);
  call.Contiguous("value_cache", value_cache);
}

}  // namespace

void rms_norm(const Runtime& runtime, const Tensor& out, const Tensor& x, const Tensor& weight,
              double eps) {
  Call call("rms_norm");
  call.Leads("x", x);
  call.Rank("x", x, 2);
  call.LastContiguous("x", x);
  call.Follows("weight", weight);
  call.Shape("weight", weight, {x.sizes[1]});
  call.Contiguous("weight", weight);
  call.Follows("out", out);
  call.Shape("out", out, {x.sizes[0], x.sizes[1]});
  call.LastContiguous("out", out);
  call.Distinct("out", out);
  FwRmsNormArgs args = {};
  args.out = out.data;
  args.x = x.data;
  args.weight = weight.data;
  args.tokens = x.sizes[0];
  args.hidden = x.sizes[1];
  args.out_stride = out.strides[0];
  args.x_stride = x.strides[0];
  args.eps = static_cast<float>(eps);
  args.dtype = call.dtype();
  const Exec exec(runtime, x);
  exec.Check(Kernels().rms_norm(exec.get(), &args));
}

void fused_add_rms_norm(const Runtime& runtime, const Tensor& x, const Tensor& residual,
                        const Tensor& weight, double eps) {
  Call call("fused_add_rms_norm");
  call.Leads("x", x);
  call.Rank("x", x, 2);
  call.LastContiguous("x", x);
  call.Distinct("x", x);
  call.Follows("residual", residual);
  call.Shape("residual", residual, {x.sizes[0], x.sizes[1]});
  call.LastContiguous("residual", residual);
  call.Distinct("residual", residual);
  call.Follows("weight", weight);
  call.Shape("weight", weight, {x.sizes[1]});
  call.Contiguous("weight", weight);
  FwFusedAddRmsNormArgs args = {};
  args.x = x.data;
  args.residual = residual.data;
  args.weight = weight.data;
  args.tokens = x.sizes[0];
  args.hidden = x.sizes[1];
  args.x_stride = x.strides[0];
  args.residual_stride = residual.strides[0];
  args.eps = static_cast<float>(eps);
  args.dtype = call.dtype();
  const Exec exec(runtime, x);
  exec.Check(Kernels().fused_add_rms_norm(exec.get(), &args));
}

void silu_and_mul(const Runtime& runtime, const Tensor& out, const Tensor& x) {
  Call call("silu_and_mul");
  call.Leads("x", x);
  call.Rank("x", x, 2);
  if (x.sizes[1] % 2 != 0) {
    call.Fail(
        "x", "must have an even last dimension (gate, then up), not " + std::to_string(x.sizes[1]));
  }
  call.LastContiguous("x", x);
  call.Follows("out", out);
  call.Shape("out", out, {x.sizes[0], x.sizes[1] / 2});
  call.LastContiguous("out", out);
  call.Distinct("out", out);
  FwSiluAndMulArgs args = {};
  args.out = out.data;
  args.x = x.data;
  args.tokens = x.sizes[0];
  args.size = x.sizes[1] / 2;
  args.out_stride = out.strides[0];
  args.x_stride = x.strides[0];
  args.dtype = call.dtype();
  const Exec exec(runtime, x);
  exec.Check(Kernels().silu_and_mul(exec.get(), &args));
}

void rotary_embedding(const Runtime& runtime, const Tensor& positions, const Tensor& query,
                      const Tensor& key, const Tensor& cos_sin, bool neox) {
  Call call("rotary_embedding");
  call.Leads("query", query);
  call.Rank("query", query, 3);
  call.LastContiguous("query", query);
  call.Distinct("query", query);
  call.Follows("key", key);
  call.Rank("key", key, 3);
  call.Shape("key", key, {query.sizes[0], key.sizes[1], query.sizes[2]});
  call.LastContiguous("key", key);
  call.Distinct("key", key);
  call.Typed("positions", positions, Dtype::kInt64);
  call.Shape("positions", positions, {query.sizes[0]});
  call.Contiguous("positions", positions);
  call.Typed("cos_sin", cos_sin, Dtype::kFloat32);
  call.Rank("cos_sin", cos_sin, 2);
  call.Contiguous("cos_sin", cos_sin);
  if (cos_sin.sizes[1] % 2 != 0 || cos_sin.sizes[1] > query.sizes[2]) {
    call.Fail("cos_sin",
              "must have an even last dimension (the rotary size), at most the head "
              "size " +
                  std::to_string(query.sizes[2]) + ", not " + std::to_string(cos_sin.sizes[1]));
  }
  FwRotaryEmbeddingArgs args = {};
  args.positions = static_cast<const int64_t*>(positions.data);
  args.query = query.data;
  args.key = key.data;
  args.cos_sin = static_cast<const float*>(cos_sin.data);
  args.tokens = query.sizes[0];
  args.query_heads = query.sizes[1];
  args.key_heads = key.sizes[1];
  args.head_size = query.sizes[2];
  args.rotary_size = cos_sin.sizes[1];
  args.max_position = cos_sin.sizes[0];
  args.query_stride = query.strides[0];
  args.key_stride = key.strides[0];
  args.query_head_stride = query.strides[1];
  args.key_head_stride = key.strides[1];
  args.neox = neox ? 1 : 0;
  args.dtype = call.dtype();
  const Exec exec(runtime, query);
  exec.Check(Kernels().rotary_embedding(exec.get(), &args));
}

void reshape_and_cache(const Runtime& runtime, const Tensor& key, const Tensor& value,
                       const Tensor& key_cache, const Tensor& value_cache,
                       const Tensor& slot_mapping) {
  Call call("reshape_and_cache");
  call.Leads("key", key);
  call.Rank("key", key, 3);
  CheckHeadSize(call, "key", key.sizes[2]);
  call.LastContiguous("key", key);
  call.Follows("value", value);
  call.Shape("value", value, {key.sizes[0], key.sizes[1], key.sizes[2]});
  call.LastContiguous("value", value);
  CheckCaches(call, key_cache, value_cache);
  const int32_t log2 = BlockSizeLog2(call, "key_cache", key_cache.sizes[1]);
  call.Shape("key_cache", key_cache,
             {key_cache.sizes[0], key_cache.sizes[1], key.sizes[1], key.sizes[2]});
  call.Typed("slot_mapping", slot_mapping, Dtype::kInt64);
  call.Shape("slot_mapping", slot_mapping, {key.sizes[0]});
  call.Contiguous("slot_mapping", slot_mapping);
  FwReshapeAndCacheArgs args = {};
  args.key = key.data;
  args.value = value.data;
  args.key_cache = key_cache.data;
  args.value_cache = value_cache.data;
  args.slot_mapping = static_cast<const int64_t*>(slot_mapping.data);
  args.tokens = key.sizes[0];
  args.kv_heads = key.sizes[1];
  args.head_size = key.sizes[2];
  args.blocks = key_cache.sizes[0];
  args.key_stride = key.strides[0];
  args.value_stride = value.strides[0];
  args.key_head_stride = key.strides[1];
  args.value_head_stride = value.strides[1];
  args.block_size_log2 = log2;
  args.dtype = call.dtype();
  const Exec exec(runtime, key);
  exec.Check(Kernels().reshape_and_cache(exec.get(), &args));
}

namespace {

void CheckAttention(const Call& call, const Tensor& out, const Tensor& query,
                    const Tensor& key_cache, const Tensor& value_cache) {
  call.Rank("query", query, 3);
  CheckHeadSize(call, "query", query.sizes[2]);
  call.LastContiguous("query", query);
  call.Follows("out", out);
  call.Shape("out", out, {query.sizes[0], query.sizes[1], query.sizes[2]});
  call.LastContiguous("out", out);
  call.Distinct("out", out);
  CheckCaches(call, key_cache, value_cache);
  const int64_t kv_heads = key_cache.sizes[2];
  call.Shape("key_cache", key_cache,
             {key_cache.sizes[0], key_cache.sizes[1], kv_heads, query.sizes[2]});
  if (kv_heads == 0 || query.sizes[1] % kv_heads != 0) {
    call.Fail("query", "must have a multiple of the cache's " + std::to_string(kv_heads) +
                           " heads, not " + std::to_string(query.sizes[1]));
  }
}

void CheckBatch(const Call& call, const Tensor& block_table, const Tensor& seq_lens,
                const Tensor& query_start_loc) {
  call.Typed("block_table", block_table, Dtype::kInt32);
  call.Rank("block_table", block_table, 2);
  call.LastContiguous("block_table", block_table);
  const int64_t sequences = block_table.sizes[0];
  call.Typed("seq_lens", seq_lens, Dtype::kInt32);
  call.Shape("seq_lens", seq_lens, {sequences});
  call.Contiguous("seq_lens", seq_lens);
  call.Typed("query_start_loc", query_start_loc, Dtype::kInt32);
  call.Shape("query_start_loc", query_start_loc, {sequences + 1});
  call.Contiguous("query_start_loc", query_start_loc);
}

FwPagedAttentionArgs AttentionArgs(const Tensor& out, const Tensor& query, const Tensor& key_cache,
                                   const Tensor& value_cache, const Tensor& block_table,
                                   const Tensor& seq_lens, const Tensor& query_start_loc) {
  FwPagedAttentionArgs args = {};
  args.out = out.data;
  args.query = query.data;
  args.key_cache = key_cache.data;
  args.value_cache = value_cache.data;
  args.block_table = static_cast<const int32_t*>(block_table.data);
  args.seq_lens = static_cast<const int32_t*>(seq_lens.data);
  args.query_start_loc = static_cast<const int32_t*>(query_start_loc.data);
  args.tokens = query.sizes[0];
  args.sequences = block_table.sizes[0];
  args.heads = query.sizes[1];
  args.kv_heads = key_cache.sizes[2];
  args.head_size = query.sizes[2];
  args.blocks = key_cache.sizes[0];
  args.max_blocks = block_table.sizes[1];
  args.block_table_stride = block_table.strides[0];
  args.query_stride = query.strides[0];
  args.query_head_stride = query.strides[1];
  args.out_stride = out.strides[0];
  args.out_head_stride = out.strides[1];
  args.splits = 1;
  return args;
}

// One allocation for what the splits leave for the second pass.
void GiveScratch(const Runtime& runtime, FwPagedAttentionArgs* args) {
  const int64_t shares = args->tokens * args->heads * args->splits;
  float* scratch = runtime.scratch(runtime.context, shares * (args->head_size + 2));
  args->partial_out = scratch;
  args->partial_max = scratch + shares * args->head_size;
  args->partial_sum = args->partial_max + shares;
}

}  // namespace

void paged_attention(const Runtime& runtime, const Tensor& out, const Tensor& query,
                     const Tensor& key_cache, const Tensor& value_cache, const Tensor& block_table,
                     const Tensor& seq_lens, const Tensor& query_start_loc, double scale,
                     int64_t window, int64_t longest) {
  Call call("paged_attention");
  call.Leads("query", query);
  CheckAttention(call, out, query, key_cache, value_cache);
  const int32_t log2 = BlockSizeLog2(call, "key_cache", key_cache.sizes[1]);
  CheckBatch(call, block_table, seq_lens, query_start_loc);
  if (window < 0)
    call.Fail("window", "must be 0 (none) or positive, not " + std::to_string(window));
  if (longest < 0) call.Fail("longest", "must not be negative, but is " + std::to_string(longest));
  FwPagedAttentionArgs args =
      AttentionArgs(out, query, key_cache, value_cache, block_table, seq_lens, query_start_loc);
  args.block_size_log2 = log2;
  args.window = window;
  args.scale = static_cast<float>(scale);
  args.dtype = call.dtype();
  if (args.tokens == 0) return;
  const Exec exec(runtime, query);
  args.splits = Kernels().paged_attention_splits(exec.get(), &args, longest);
  if (args.splits > 1) GiveScratch(runtime, &args);
  exec.Check(Kernels().paged_attention(exec.get(), &args));
}

void warm_up(int64_t device) {
  if (device < -1 || device > INT32_MAX) {
    Call("warm_up").Fail("device", "must be a CUDA device's number, or -1 for the CPU, not " +
                                       std::to_string(device));
  }
  const Exec exec(static_cast<int32_t>(device), nullptr, nullptr);
  exec.Check(Kernels().warm_up(exec.get()));
}

std::string cpu_isa() {
  const Exec exec(-1, nullptr, nullptr);
  const char* isa = Kernels().cpu_isa(exec.get());
  exec.Check(isa == nullptr ? 1 : 0);
  return isa;
}

}  // namespace fw
