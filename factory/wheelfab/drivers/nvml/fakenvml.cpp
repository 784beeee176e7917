// A libnvidia-ml.so.1 for the fake driver's devices, that says of every one what the environment
// tells it to:
//
//   FAKECUDA_MIG        which devices are MIG instances, as for the driver: these answer to
//                       MIG-..., not to GPU-...
//   FAKENVML_FREE       bytes of free memory (default 8 GiB)
//   FAKENVML_MODE       compute mode: 0 default, 2 prohibited, 3 exclusive
//   FAKENVML_PROCESSES  number of processes with a context
//   FAKENVML_FAIL       nvmlInit_v2 answers with that code; "segv": it dies
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNotFound = 6;          // NVML_ERROR_NOT_FOUND
constexpr int kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE

int device;  // its address stands for every device

long long Setting(const char* name, long long otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

// Whether FAKECUDA_MIG lists the device whose UUID ends so: in it, devices count from 1.
bool IsInstance(const char* uuid) {
  const char* listed = std::getenv("FAKECUDA_MIG");
  if (listed == nullptr || std::strcmp(listed, "all") == 0) return listed != nullptr;
  const size_t size = std::strlen(uuid);
  const long number = size < 2 ? -1 : std::strtol(uuid + size - 2, nullptr, 16) - 1;
  for (const char* at = listed; *at != '\0'; ++at) {
    char* end = nullptr;
    if (std::strtol(at, &end, 10) == number && end != at) return true;
    at = std::strchr(at, ',');
    if (at == nullptr) return false;
  }
  return false;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
  const char* fail = std::getenv("FAKENVML_FAIL");
  if (fail != nullptr && std::strcmp(fail, "segv") == 0) {
    int* volatile nowhere = nullptr;
    *const_cast<volatile int*>(nowhere) = 1;
  }
  return fail != nullptr ? std::atoi(fail) : 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  const char* kind = IsInstance(uuid) ? "MIG-" : "GPU-";
  if (std::strncmp(uuid, kind, 4) != 0) return kNotFound;
  *handle = &device;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* memory) {
  if (handle != &device) return kNotFound;
  memory[0] = 1ull << 34;
  memory[1] = static_cast<unsigned long long>(Setting("FAKENVML_FREE", 1ll << 33));
  memory[2] = memory[0] - memory[1];
  return 0;
}

int nvmlDeviceGetComputeMode(void* handle, int* mode) {
  if (handle != &device) return kNotFound;
  *mode = static_cast<int>(Setting("FAKENVML_MODE", 0));
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void* infos) {
  if (handle != &device || infos != nullptr) return kNotFound;
  *count = static_cast<unsigned>(Setting("FAKENVML_PROCESSES", 0));
  return *count > 0 ? kInsufficientSize : 0;
}

}  // extern "C"
#pragma GCC visibility pop
