// The table of _kernels: an operation on device -1 goes to the CPU half, any other to the CUDA
// half.
#include "abi/table.h"

#include "cuda/ops.h"
#include "kernels/cpu/cpu.h"

namespace {

template <class Args>
using Half = int32_t (*)(const FwExec*, const Args*);

// Empty input is valid, and needs neither an instruction set nor a driver.
template <class Args, Half<Args> cpu, Half<Args> cuda>
int32_t OnDevice(const FwExec* exec, const Args* args) {
  if (args->tokens == 0) return 0;
  return exec->device < 0 ? cpu(exec, args) : cuda(exec, args);
}

int32_t Splits(const FwExec* exec, const FwPagedAttentionArgs* args, int64_t longest) {
  return exec->device < 0 ? fw_cpu_paged_attention_splits(exec, args, longest)
                          : fw_cuda_paged_attention_splits(exec, args, longest);
}

int32_t WarmUp(const FwExec* exec) {
  if (exec->device < 0) return fw_cpu_isa(exec) == nullptr ? 1 : 0;
  return fw_cuda_warm_up(exec);
}

const FwKernels kTable = {
    sizeof(FwKernels),
    FW_INTERFACE_VERSION,
    OnDevice<FwRmsNormArgs, fw_cpu_rms_norm, fw_cuda_rms_norm>,
    OnDevice<FwFusedAddRmsNormArgs, fw_cpu_fused_add_rms_norm, fw_cuda_fused_add_rms_norm>,
    OnDevice<FwSiluAndMulArgs, fw_cpu_silu_and_mul, fw_cuda_silu_and_mul>,
    OnDevice<FwRotaryEmbeddingArgs, fw_cpu_rotary_embedding, fw_cuda_rotary_embedding>,
    OnDevice<FwReshapeAndCacheArgs, fw_cpu_reshape_and_cache, fw_cuda_reshape_and_cache>,
    OnDevice<FwPagedAttentionArgs, fw_cpu_paged_attention, fw_cuda_paged_attention>,
    Splits,
    WarmUp,
    fw_cpu_isa,
    fw_cuda_archs,
    fw_cpu_isas,
    fw_cuda_driver_process,
};

}  // namespace

const FwKernels* freewheel_kernels(void) { return &kTable; }
