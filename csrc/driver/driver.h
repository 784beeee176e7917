// The CUDA driver, libcuda.so.1, opened when a CUDA operation is first called and never closed.
// Nothing here needs a CUDA library to link or to load.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace fw {

// The driver API's own types, as far as they are used: its interface is C and stable.
using CUresult = int32_t;
using CUdevice = int32_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;

// Entry points by the names that the library exports: cuda.h maps cuCtxPushCurrent to its _v2.
#define FW_DRIVER_CALLS(X)                                                                 \
  X(cuInit, unsigned int flags)                                                            \
  X(cuDriverGetVersion, int* version)                                                      \
  X(cuDeviceGetCount, int* count)                                                          \
  X(cuDeviceGet, CUdevice* device, int ordinal)                                            \
  X(cuDeviceGetName, char* name, int size, CUdevice device)                                \
  X(cuDeviceGetAttribute, int* value, int attribute, CUdevice device)                      \
  X(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device)                         \
  X(cuCtxPushCurrent_v2, CUcontext context)                                                \
  X(cuCtxPopCurrent_v2, CUcontext* context)                                                \
  X(cuModuleLoadData, CUmodule* module, const void* image)                                 \
  X(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name)          \
  X(cuFuncSetAttribute, CUfunction function, int attribute, int value)                     \
  X(cuLaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y,         \
    unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, \
    unsigned int shared_bytes, CUstream stream, void** params, void** extra)

// Entry points that only make an error's text better.
#define FW_DRIVER_OPTIONAL_CALLS(X)                     \
  X(cuGetErrorName, CUresult result, const char** name) \
  X(cuGetErrorString, CUresult result, const char** description)

// A driver that was opened and initialised. One per process, shared by all threads.
class Driver {
 public:
  // Opens libcuda.so.1, looks up every entry point and calls cuInit, once in the process, whatever
  // number of threads call this at once. Null with a sentence in *error when any of it failed: the
  // reason is kept, and a later call gives it again without asking the driver. Also null in a child
  // forked after the driver was opened, where CUDA cannot work.
  static const Driver* Get(std::string* error);

  // The process that opened it or is about to, 0 if none is or it failed. After a fork that is not
  // this process.
  static int32_t Process();

  // Empty for success; otherwise a sentence: what was asked, of what, and what came back.
  std::string Check(CUresult result, const char* call, const std::string& of) const;

  // CUDA release that the driver implements, as 12010.
  int32_t version() const { return version_; }

#define FW_DECLARE(name, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  FW_DRIVER_CALLS(FW_DECLARE)
  FW_DRIVER_OPTIONAL_CALLS(FW_DECLARE)
#undef FW_DECLARE

 private:
  std::string Open();

  pid_t process_ = 0;
  int32_t version_ = 0;
  std::string library_ = "libcuda.so.1";  // its file, once that is known
};

}  // namespace fw
