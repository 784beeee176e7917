// Compiled once for each instruction set, with FW_ISA_TABLE and FW_ISA_NAME set: the whole object
// has internal linkage but for its table.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rotary.h"

extern "C" const FwCpuKernels FW_ISA_TABLE = {FW_ISA_NAME,   RmsNorm,         FusedAddRmsNorm,
                                              SiluAndMul,    RotaryEmbedding, ReshapeAndCache,
                                              PagedAttention};
