// The operations over borrowed tensors: checks, the argument record, the call through the table.
// The bindings call these; each throws std::runtime_error.
#pragma once

#include <cstdint>
#include <string>

#include "torch/tensor.h"

namespace fw {

void rms_norm(const Runtime& runtime, const Tensor& out, const Tensor& x, const Tensor& weight,
              double eps);
void fused_add_rms_norm(const Runtime& runtime, const Tensor& x, const Tensor& residual,
                        const Tensor& weight, double eps);
void silu_and_mul(const Runtime& runtime, const Tensor& out, const Tensor& x);
void rotary_embedding(const Runtime& runtime, const Tensor& positions, const Tensor& query,
                      const Tensor& key, const Tensor& cos_sin, bool neox);
void reshape_and_cache(const Runtime& runtime, const Tensor& key, const Tensor& value,
                       const Tensor& key_cache, const Tensor& value_cache,
                       const Tensor& slot_mapping);
void paged_attention(const Runtime& runtime, const Tensor& out, const Tensor& query,
                     const Tensor& key_cache, const Tensor& value_cache, const Tensor& block_table,
                     const Tensor& seq_lens, const Tensor& query_start_loc, double scale,
                     int64_t window, int64_t longest);

// Loads the device images of a CUDA device, or with -1 chooses the CPU's instruction set.
void warm_up(int64_t device);
// The CPU instruction set in use.
std::string cpu_isa();

}  // namespace fw
