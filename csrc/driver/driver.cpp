#include "driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "compat/dl.h"
#include "results.h"

namespace fw {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
constexpr CUresult kNotInitialized = 3;  // what the driver answers in a forked child

// What opening came to, written once and then only read.
struct Opened {
  Driver driver;
  std::string error;
};

std::mutex opening_lock;
std::atomic<pid_t> opening_process{0};
std::atomic<const Opened*> opened{nullptr};

// Set in a child that was forked after the driver was opened, so that a launch need not ask the
// kernel who it is. glibc's own entry: pthread_atfork may want another library at link time.
std::atomic<bool> forked{false};
bool watches_forks = false;  // written before `opened`

extern "C" int __register_atfork(void (*)(), void (*)(), void (*)(), void*) __attribute__((weak));
extern "C" void* __dso_handle __attribute__((visibility("hidden")));

void WatchForks() {
  if (watches_forks || __register_atfork == nullptr) return;
  watches_forks =
      __register_atfork(nullptr, nullptr, [] { forked.store(true); }, __dso_handle) == 0;
}

std::string ForkedAfterUse(pid_t owner) {
  return "CUDA was used in process " + std::to_string(owner) + " before it forked process " +
         std::to_string(getpid()) +
         ", and a driver does not survive a fork: start workers with the spawn method, or use CUDA "
         "only after forking";
}

std::string LoaderError() {
  const char* text = dlerror();
  return text != nullptr ? text : "the loader gave no reason";
}

// The file of an entry point: with several drivers in the search path, the one that was taken.
std::string FileOf(const void* entry_point) {
  Dl_info info{};
  if (entry_point == nullptr || dladdr(entry_point, &info) == 0 || info.dli_fname == nullptr) {
    return kLibrary;
  }
  return info.dli_fname;
}

}  // namespace

const Driver* Driver::Get(std::string* error) {
  const Opened* state = opened.load(std::memory_order_acquire);
  if (state == nullptr) {
    const pid_t self = getpid();
    // A child forked while another thread was opening inherits the lock as held for ever.
    const pid_t owner = opening_process.load();
    if (owner != 0 && owner != self) {
      *error = ForkedAfterUse(owner);
      return nullptr;
    }
    const std::lock_guard<std::mutex> hold(opening_lock);
    state = opened.load(std::memory_order_acquire);
    if (state == nullptr) {
      WatchForks();
      opening_process.store(self);
      auto* made = new Opened;  // lives as long as the process: the driver is never closed
      made->error = made->driver.Open();
      opened.store(made, std::memory_order_release);
      state = made;
    }
  }
  if (!state->error.empty()) {
    *error = state->error;
    return nullptr;
  }
  if (watches_forks ? forked.load(std::memory_order_relaxed) : state->driver.process_ != getpid()) {
    *error = ForkedAfterUse(state->driver.process_);
    return nullptr;
  }
  return &state->driver;
}

int32_t Driver::Process() {
  const Opened* state = opened.load(std::memory_order_acquire);
  if (state == nullptr) return opening_process.load();
  return state->error.empty() ? state->driver.process_ : 0;
}

std::string Driver::Open() {
  process_ = getpid();
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return "no NVIDIA driver: " + LoaderError() +
           "; CUDA operations need libcuda.so.1, which comes with the driver, operations on CPU "
           "tensors do not";
  }
#define FW_LOOK_UP(name, ...) *reinterpret_cast<void**>(&name) = dlsym(library, #name);
#define FW_REQUIRE(name, ...)                                                          \
  if (name == nullptr) {                                                               \
    return "the driver library " + library_ +                                          \
           " has no function " #name                                                   \
           ": it is broken, a stub, or no NVIDIA driver library; "                     \
           "reinstall the NVIDIA driver, or take this library out of the search path"; \
  }
  FW_DRIVER_CALLS(FW_LOOK_UP)
  FW_DRIVER_OPTIONAL_CALLS(FW_LOOK_UP)
  library_ = FileOf(cuInit != nullptr ? reinterpret_cast<const void*>(cuInit)
                                      : reinterpret_cast<const void*>(cuDriverGetVersion));
  FW_DRIVER_CALLS(FW_REQUIRE)
#undef FW_LOOK_UP
#undef FW_REQUIRE
  const CUresult result = cuInit(0);
  if (result == kNotInitialized) {
    return Check(result, "cuInit", library_) +
           "; this is what a process gets that was forked after CUDA was used: start workers with "
           "the spawn method";
  }
  if (result != 0) return Check(result, "cuInit", library_);
  int version = 0;
  const std::string error = Check(cuDriverGetVersion(&version), "cuDriverGetVersion", library_);
  version_ = version;
  return error;
}

std::string Driver::Check(CUresult result, const char* call, const std::string& of) const {
  if (result == 0) return "";
  const char* name = nullptr;
  const char* description = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != 0 || name == nullptr) {
    name = ResultName(result);
  }
  if (cuGetErrorString == nullptr || cuGetErrorString(result, &description) != 0) {
    description = nullptr;
  }
  std::string text = std::string(call) + " of " + of + " returned " + std::to_string(result) +
                     " (" + (name != nullptr ? name : "a code without a name");
  if (description != nullptr) text += std::string(": ") + description;
  return text + ")";
}

}  // namespace fw
