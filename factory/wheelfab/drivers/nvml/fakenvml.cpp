// A libnvidia-ml.so.1 for the fake driver's devices, that says of them what the environment tells
// it to, whatever CUDA_VISIBLE_DEVICES hides:
//
//   FAKECUDA_DEVICES    as for the driver: how many there are
//   FAKECUDA_MIG        as for the driver: MIG instances answer to MIG-..., not to GPU-...
//   FAKENVML_FREE       bytes of free memory (default: half of a device's)
//   FAKENVML_MODE       compute mode: 0 default, 2 prohibited, 3 exclusive
//   FAKENVML_PROCESSES  number of processes with a context
//   FAKENVML_FAIL       nvmlInit_v2 answers with that code; "segv": it dies
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kInvalidArgument = 2;   // NVML_ERROR_INVALID_ARGUMENT
constexpr int kNotFound = 6;          // NVML_ERROR_NOT_FOUND
constexpr int kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
constexpr int kMost = 64;

char devices[kMost];  // their addresses are the handles

long long Setting(const char* name, long long otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

int Count() {
  const char* listed = std::getenv("FAKECUDA_DEVICES");
  if (listed == nullptr) return 1;
  if (std::strcmp(listed, "none") == 0) return 0;
  const auto commas = std::count(listed, listed + std::strlen(listed), ',');
  return std::min(kMost, 1 + static_cast<int>(commas));
}

// The number behind a handle, or -1.
int Number(const void* handle) {
  const char* at = static_cast<const char*>(handle);
  return at >= devices && at < devices + Count() ? static_cast<int>(at - devices) : -1;
}

bool IsInstance(int number) {
  const char* listed = std::getenv("FAKECUDA_MIG");
  if (listed == nullptr || std::strcmp(listed, "all") == 0) return listed != nullptr;
  for (const char* at = listed; at != nullptr && *at != '\0';) {
    char* end = nullptr;
    if (std::strtol(at, &end, 10) == number && end != at) return true;
    at = std::strchr(at, ',');
    if (at != nullptr) ++at;
  }
  return false;
}

void Uuid(int number, char* text, size_t size) {
  const char* kind = IsInstance(number) ? "MIG" : "GPU";
  std::snprintf(text, size, "%s-00000000-0000-0000-0000-%012x", kind, number + 1);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
  const char* fail = std::getenv("FAKENVML_FAIL");
  if (fail != nullptr && std::strcmp(fail, "segv") == 0) {
    volatile int* volatile nowhere = nullptr;
    *nowhere = 1;
  }
  return fail != nullptr ? std::atoi(fail) : 0;
}

int nvmlInit() { return nvmlInit_v2(); }

int nvmlShutdown() { return 0; }

const char* nvmlErrorString(int result) { return result == 0 ? "Success" : "a fake's error"; }

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "550.54.14");
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Count());
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= static_cast<unsigned>(Count())) return kInvalidArgument;
  *handle = &devices[index];
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  for (int i = 0; i < Count(); ++i) {
    char own[48];
    Uuid(i, own, sizeof own);
    if (std::strcmp(own, uuid) != 0) continue;
    *handle = &devices[i];
    return 0;
  }
  return kNotFound;
}

int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) {
  if (Number(handle) < 0) return kInvalidArgument;
  Uuid(Number(handle), text, size);
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* memory) {
  if (Number(handle) < 0) return kInvalidArgument;
  memory[0] = IsInstance(Number(handle)) ? 1ull << 31 : 1ull << 34;
  const long long half = static_cast<long long>(memory[0] / 2);
  memory[1] = static_cast<unsigned long long>(Setting("FAKENVML_FREE", half));
  memory[2] = memory[0] - memory[1];
  return 0;
}

int nvmlDeviceGetComputeMode(void* handle, int* mode) {
  if (Number(handle) < 0) return kInvalidArgument;
  *mode = static_cast<int>(Setting("FAKENVML_MODE", 0));
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void* infos) {
  if (Number(handle) < 0 || infos != nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(Setting("FAKENVML_PROCESSES", 0));
  return *count > 0 ? kInsufficientSize : 0;
}

}  // extern "C"
#pragma GCC visibility pop
