// The CUDA half of _kernels as a library of its own, with the image reader's functions made
// callable from C, for tests through ctypes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi/table.h"
#include "cuda/ops.h"
#include "driver/device.h"
#include "images/fatbin.h"

namespace {

const FwKernels kTable = {
    sizeof(FwKernels),
    FW_INTERFACE_VERSION,
    fw_cuda_rms_norm,
    fw_cuda_fused_add_rms_norm,
    fw_cuda_silu_and_mul,
    fw_cuda_rotary_embedding,
    fw_cuda_reshape_and_cache,
    fw_cuda_paged_attention,
    fw_cuda_paged_attention_splits,
    fw_cuda_warm_up,
    nullptr,
    fw_cuda_archs,
    nullptr,
    fw_cuda_driver_process,
};

// A copy of some bytes that ends where memory ends: a read beyond it is a segmentation fault.
class Guarded {
 public:
  Guarded(const uint8_t* bytes, size_t size) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (size + page - 1) / page * page;
    size_ = room + page;
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + room, page, PROT_NONE) != 0) std::abort();
    end_ = base_ + room;
    begin_ = end_ - size;
    if (size > 0) std::memcpy(base_ + room - size, bytes, size);
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() { munmap(base_, size_); }
  const uint8_t* begin() const { return begin_; }
  const uint8_t* end() const { return end_; }

 private:
  uint8_t* base_;
  size_t size_;
  const uint8_t* begin_;
  const uint8_t* end_;
};

void Copy(const std::string& text, char* to, size_t size) {
  std::snprintf(to, size, "%s", text.c_str());
}

}  // namespace

const FwKernels* freewheel_kernels(void) { return &kTable; }

#pragma GCC visibility push(default)
extern "C" {

// Reads a container and chooses: the chosen entry's name to `chosen` ("" for none), the arch list
// to `archs`, the sentence about a malformed container or the lack of an image to `error`, and what
// the driver would get to `image`. Returns the size of that, 0 for none, -1 for a malformed
// container.
int64_t harness_choose(const uint8_t* container, int64_t size, int32_t major, int32_t minor,
                       int32_t driver_version, char* chosen, char* archs, char* error,
                       uint8_t* image, size_t text_size) {
  const Guarded copy(container, static_cast<size_t>(size));
  const fw::Fatbin fatbin = fw::ReadFatbin(copy.begin(), copy.end());
  chosen[0] = archs[0] = '\0';
  Copy(fatbin.error, error, text_size);
  if (!fatbin.error.empty()) return -1;
  Copy(fw::ArchList(fatbin.entries), archs, text_size);
  const fw::Capability capability{major, minor};
  const fw::ImageEntry* entry = fw::ChooseImage(fatbin.entries, capability, driver_version);
  if (entry == nullptr) {
    const fw::DeviceFacts device{0, "Fake GPU", capability, driver_version};
    Copy(fw::NoImageFits("attention", fatbin.entries, device), error, text_size);
    return 0;
  }
  Copy(fw::ArchName(*entry), chosen, text_size);
  const std::vector<uint8_t> bytes = fw::ImageForDriver(*entry);
  std::memcpy(image, bytes.data(), bytes.size());
  return static_cast<int64_t>(bytes.size());
}

// Opens the driver: 1 when usable, else 0 with the reason.
int32_t harness_open(char* error, size_t size) {
  std::string reason;
  const bool usable = fw::Driver::Get(&reason) != nullptr;
  Copy(reason, error, size);
  return usable ? 1 : 0;
}

// One launch of any shape, for what the operations' own launches never ask for.
int32_t harness_launch(int32_t device, const char* image, const char* kernel,
                       const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                       const void* args, void* stream, char* error, size_t size) {
  std::string reason;
  fw::Device* found = fw::Device::Get(device, &reason);
  if (found != nullptr) {
    const FwLaunch launch = {
        kernel, image, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared_bytes};
    reason = found->Launch(launch, args, stream);
  }
  Copy(reason, error, size);
  return reason.empty() ? 0 : 1;
}

}  // extern "C"
#pragma GCC visibility pop
