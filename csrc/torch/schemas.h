// Every operator of the namespace `freewheel`: its name and its schema. The classic and the stable
// binding register from this list alone.
#pragma once

// Operators over tensors, with CPU, CUDA and Meta implementations.
#define FREEWHEEL_OPERATORS(X)                                                                   \
  X(rms_norm, "rms_norm(Tensor(a!) out, Tensor x, Tensor weight, float eps) -> ()")              \
  X(fused_add_rms_norm,                                                                          \
    "fused_add_rms_norm(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps) -> ()")     \
  X(silu_and_mul, "silu_and_mul(Tensor(a!) out, Tensor x) -> ()")                                \
  X(rotary_embedding,                                                                            \
    "rotary_embedding(Tensor positions, Tensor(a!) query, Tensor(b!) key, Tensor cos_sin, "      \
    "bool neox) -> ()")                                                                          \
  X(reshape_and_cache,                                                                           \
    "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, " \
    "Tensor slot_mapping) -> ()")                                                                \
  X(paged_attention,                                                                             \
    "paged_attention(Tensor(a!) out, Tensor query, Tensor key_cache, Tensor value_cache, "       \
    "Tensor block_table, Tensor seq_lens, Tensor query_start_loc, float scale, int window, "     \
    "int longest) -> ()")

// Functions without a tensor.
#define FREEWHEEL_FUNCTIONS(X)            \
  X(warm_up, "warm_up(int device) -> ()") \
  X(cpu_isa, "cpu_isa() -> str")
