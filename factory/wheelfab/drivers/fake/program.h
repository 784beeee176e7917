// Device programs as the fake driver loads them: cubin, PTX text, or a container of both, picked
// and read by code of its own, so that a mistake in csrc/images is not made twice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "behaviour.h"

namespace fake {

// What a program says of one kernel; -1 where it says nothing.
struct KernelFacts {
  std::vector<int32_t> param_sizes;  // bytes, in order
  int32_t registers = -1;            // per thread
  int32_t max_threads = -1;          // of a block, from __launch_bounds__
  int64_t static_shared = 0;         // bytes
};

struct Program {
  int32_t arch = 0;
  bool ptx = false;
  bool known = true;  // false: the text could not be read (zstd), so kernels are not checked
  std::map<std::string, KernelFacts> kernels;
};

// Loads `image` for a device of capability `arch` and a driver of CUDA `version`. Gives the
// driver's result code, with the reason in *why.
Result LoadProgram(const void* image, int32_t arch, int32_t version, Program* program,
                   std::string* why);

}  // namespace fake
