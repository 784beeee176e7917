#include "kernels/cpu/cpu.h"

#include <cstdarg>
#include <cstdio>

#include "kernels/cpu/isa.h"

namespace {

// Splits at most, as many as the second pass has room for.
constexpr int64_t kMaxSplits = 64;
// A split has this many keys at least, and a call this many tasks before splits pay.
constexpr int64_t kSplitKeys = 512;
constexpr int64_t kEnoughTasks = 16;

__attribute__((format(printf, 2, 3))) int32_t Fail(const FwExec* exec, const char* format, ...) {
  if (exec->error != nullptr && exec->error_size > 0) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(exec->error, static_cast<size_t>(exec->error_size), format, arguments);
    va_end(arguments);
  }
  return 1;
}

long long Number(int64_t value) { return value; }

// Runs an operation of the best instruction set.
template <class Args>
int32_t Run(const FwExec* exec, const Args* args,
            void (*FwCpuKernels::*operation)(const FwExec*, const Args*)) {
  const FwCpuKernels* kernels = fw::CpuKernels(exec);
  if (kernels == nullptr) return 1;
  (kernels->*operation)(exec, args);
  return 0;
}

int32_t CheckRange(const FwExec* exec, const char* what, const int64_t* values, int64_t count,
                   int64_t least, int64_t end) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < least || values[i] >= end) {
      return Fail(exec, "%s[%lld] is %lld, not in %lld .. %lld", what, Number(i), Number(values[i]),
                  Number(least), Number(end - 1));
    }
  }
  return 0;
}

int32_t CheckQueryStart(const FwExec* exec, const FwPagedAttentionArgs& a) {
  const char* op = "paged_attention: query_start_loc";
  const int32_t* start = a.query_start_loc;
  if (start[0] != 0) return Fail(exec, "%s[0] is %d, not 0", op, start[0]);
  for (int64_t s = 0; s < a.sequences; ++s) {
    if (start[s + 1] < start[s]) {
      return Fail(exec, "%s[%lld] is %d, less than the %d before it", op, Number(s + 1),
                  start[s + 1], start[s]);
    }
  }
  if (start[a.sequences] != a.tokens) {
    return Fail(exec, "%s[%lld] is %d, but query has %lld tokens", op, Number(a.sequences),
                start[a.sequences], Number(a.tokens));
  }
  return 0;
}

int32_t CheckBlocks(const FwExec* exec, const FwPagedAttentionArgs& a, int64_t s) {
  const int64_t length = a.seq_lens[s];
  const int64_t queries = a.query_start_loc[s + 1] - a.query_start_loc[s];
  if (length < queries) {
    return Fail(exec, "paged_attention: seq_lens[%lld] is %lld, less than its %lld query tokens",
                Number(s), Number(length), Number(queries));
  }
  if (length > a.max_blocks << a.block_size_log2) {
    return Fail(exec, "paged_attention: seq_lens[%lld] is %lld, but block_table has room for %lld",
                Number(s), Number(length), Number(a.max_blocks << a.block_size_log2));
  }
  if (queries == 0) return 0;
  int64_t first = a.window > 0 ? length - queries + 1 - a.window : 0;
  if (first < 0) first = 0;
  for (int64_t b = first >> a.block_size_log2; b << a.block_size_log2 < length; ++b) {
    const int32_t block = a.block_table[s * a.block_table_stride + b];
    if (block < 0 || block >= a.blocks) {
      return Fail(exec, "paged_attention: block_table[%lld, %lld] is %d, not in 0 .. %lld",
                  Number(s), Number(b), block, Number(a.blocks - 1));
    }
  }
  return 0;
}

}  // namespace

int32_t fw_cpu_rms_norm(const FwExec* exec, const FwRmsNormArgs* args) {
  return Run(exec, args, &FwCpuKernels::rms_norm);
}

int32_t fw_cpu_fused_add_rms_norm(const FwExec* exec, const FwFusedAddRmsNormArgs* args) {
  return Run(exec, args, &FwCpuKernels::fused_add_rms_norm);
}

int32_t fw_cpu_silu_and_mul(const FwExec* exec, const FwSiluAndMulArgs* args) {
  return Run(exec, args, &FwCpuKernels::silu_and_mul);
}

int32_t fw_cpu_rotary_embedding(const FwExec* exec, const FwRotaryEmbeddingArgs* args) {
  if (CheckRange(exec, "rotary_embedding: positions", args->positions, args->tokens, 0,
                 args->max_position) != 0) {
    return 1;
  }
  return Run(exec, args, &FwCpuKernels::rotary_embedding);
}

int32_t fw_cpu_reshape_and_cache(const FwExec* exec, const FwReshapeAndCacheArgs* args) {
  if (CheckRange(exec, "reshape_and_cache: slot_mapping", args->slot_mapping, args->tokens, -1,
                 args->blocks << args->block_size_log2) != 0) {
    return 1;
  }
  return Run(exec, args, &FwCpuKernels::reshape_and_cache);
}

int32_t fw_cpu_paged_attention(const FwExec* exec, const FwPagedAttentionArgs* args) {
  if (CheckQueryStart(exec, *args) != 0) return 1;
  for (int64_t s = 0; s < args->sequences; ++s) {
    if (CheckBlocks(exec, *args, s) != 0) return 1;
  }
  return Run(exec, args, &FwCpuKernels::paged_attention);
}

int32_t fw_cpu_paged_attention_splits(const FwExec*, const FwPagedAttentionArgs* args,
                                      int64_t longest) {
  // At least one task a sequence and key-value head; more when there are many query tokens.
  const int64_t rows = args->tokens * (args->heads / args->kv_heads);
  const int64_t pieces = rows / 16 > args->sequences ? rows / 16 : args->sequences;
  const int64_t tasks = pieces * args->kv_heads;
  if (tasks == 0) return 1;
  int64_t splits = (kEnoughTasks + tasks - 1) / tasks;
  if (splits > longest / kSplitKeys) splits = longest / kSplitKeys;
  if (splits > kMaxSplits) splits = kMaxSplits;
  return splits < 1 ? 1 : static_cast<int32_t>(splits);
}

const char* fw_cpu_isa(const FwExec* exec) {
  const FwCpuKernels* kernels = fw::CpuKernels(exec);
  return kernels == nullptr ? nullptr : kernels->isa;
}

const char* fw_cpu_isas(int32_t usable) { return fw::CpuIsas(usable != 0); }
