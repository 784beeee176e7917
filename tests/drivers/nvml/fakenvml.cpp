// A libnvidia-ml.so.1 that says of every device what the environment tells it to:
//
//   FAKENVML_FREE       bytes of free memory (default 8 GiB)
//   FAKENVML_MODE       compute mode: 0 default, 2 prohibited, 3 exclusive
//   FAKENVML_PROCESSES  number of processes with a context
//   FAKENVML_MIG        set: devices answer to MIG-<uuid>, not to GPU-<uuid>
//   FAKENVML_FAIL       set: nvmlInit_v2 answers with that code; "segv": it dies
#include <csignal>
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

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
  const char* fail = std::getenv("FAKENVML_FAIL");
  if (fail != nullptr && std::strcmp(fail, "segv") == 0) std::raise(SIGSEGV);
  return fail != nullptr ? std::atoi(fail) : 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  const char* kind = std::getenv("FAKENVML_MIG") != nullptr ? "MIG-" : "GPU-";
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
