// A CUDA device as the operations use it: its primary context, its modules, its launches.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "driver/driver.h"
#include "images/fatbin.h"
#include "images/images.h"
#include "kernels/launch.h"

namespace fw {

// One device of the process. Retains the primary context, the one that torch uses too, and makes it
// current around each piece of work on the calling thread, whatever was current before. Every
// method that can fail returns a sentence, empty for success, and may be called from any thread.
class Device {
 public:
  // The device with this ordinal, as torch counts; made on the first call. Null with a sentence in
  // *error when there is no driver or no such device.
  static Device* Get(int32_t ordinal, std::string* error);

  // Runs `launch` on `stream` with one kernel parameter, the record at `args`.
  std::string Launch(const FwLaunch& launch, const void* args, void* stream);

  // Loads the module of an image now, and the kernels named.
  std::string Load(const FwImageKernels& image);

  // Number of multiprocessors.
  int32_t processors() const { return processors_; }

 private:
  struct Kernel {
    CUfunction function = nullptr;
    uint32_t shared_bytes = 48 * 1024;  // dynamic shared memory allowed so far
  };

  Device(const Driver* driver, int32_t ordinal);
  std::string Start();
  std::string Attribute(int attribute, int32_t* value) const;
  template <typename Work>
  std::string InContext(const Work& work) const;
  std::string Find(const char* image, const char* kernel, uint32_t shared_bytes,
                   CUfunction* function);
  std::string FindModule(const char* image, CUmodule* module);
  std::string Allow(const char* name, uint32_t shared_bytes, Kernel* kernel) const;

  const Driver* driver_;
  CUdevice handle_ = 0;
  CUcontext context_ = nullptr;
  DeviceFacts facts_;
  std::string text_;  // "CUDA device 0 (NVIDIA H200, capability 9.0)"
  int32_t processors_ = 0;
  int32_t shared_limit_ = 0;  // dynamic shared memory a block may ask for, bytes

  std::mutex lock_;  // of the two maps
  std::map<std::string, CUmodule, std::less<>> modules_;
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace fw
