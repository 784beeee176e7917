// A libcuda.so.1 for machines without a GPU: it behaves as behaviour.h says, checks each call as a
// driver and a device would, and runs kernels through a library with the interface of emulation.h.
// Memory is the host's. What it refuses it explains in its log and in fakecuda_last_refusal().
//
// This file: start, errors, devices, contexts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "state.h"

namespace fake {

State state;
std::atomic<pid_t> process{0};
thread_local std::vector<Context*> current;

const Device& DeviceAt(int device) { return GetBehaviour().devices[static_cast<size_t>(device)]; }

const Model& ModelOf(int device) { return DeviceAt(device).model; }

size_t MemoryOf(int device) { return size_t{DeviceAt(device).mig ? 2u : 16u} << 30; }

bool Exists(int device) {
  return device >= 0 && device < static_cast<int>(GetBehaviour().devices.size());
}

Result Ready(const char* call) {
  const Result result = Enter(call);
  if (result != 0) return result;
  if (process == 0) return Refuse(kNotInitialized, call, "cuInit was not called");
  if (process != getpid()) return Refuse(kNotInitialized, call, "a fork came after cuInit");
  return 0;
}

Result ReadyInContext(const char* call) {
  const Result result = Ready(call);
  if (result != 0) return result;
  return current.empty() ? Refuse(kInvalidContext, call, "no context is current") : 0;
}

bool KnownStream(void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 ||
         state.streams.count(static_cast<Stream*>(stream)) != 0;
}

bool Capturing() {
  return std::any_of(state.streams.begin(), state.streams.end(),
                     [](Stream* one) { return one->capturing; });
}

}  // namespace fake

using namespace fake;

namespace {

struct Code {
  Result result;
  const char* name;
  const char* text;
};

constexpr Code kCodes[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Code* FindCode(Result result) {
  for (const Code& code : kCodes) {
    if (code.result == result) return &code;
  }
  return nullptr;
}

bool Retained(Context* context) {
  return std::any_of(state.contexts.begin(), state.contexts.end(),
                     [&](const auto& one) { return one.get() == context && one->retained > 0; });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuInit(unsigned flags) {
  const char* const call = __func__;
  if (const Result early = Enter(call)) return Leave(early);
  const std::lock_guard<std::mutex> hold(state.lock);
  if (flags != 0) return Refuse(kInvalidValue, call, "flags");
  if (GetBehaviour().devices.empty()) return kNoDevice;
  if (process != 0 && process != getpid()) {
    return Refuse(kNotInitialized, call, "a fork came after cuInit");
  }
  process = getpid();
  return 0;
}

Result cuDriverGetVersion(int* version) {
  ENTER(Enter);
  *version = GetBehaviour().version;
  return 0;
}

// Neither answers through FAKECUDA_FAIL: a caller asks them about the failure of another call.
Result cuGetErrorName(Result result, const char** name) {
  const Code* code = FindCode(result);
  *name = code != nullptr ? code->name : nullptr;
  return code != nullptr ? 0 : kInvalidValue;
}

Result cuGetErrorString(Result result, const char** text) {
  const Code* code = FindCode(result);
  *text = code != nullptr ? code->text : nullptr;
  return code != nullptr ? 0 : kInvalidValue;
}

Result cuDeviceGetCount(int* count) {
  ENTER(Ready);
  *count = static_cast<int>(GetBehaviour().devices.size());
  return 0;
}

Result cuDeviceGet(int* device, int ordinal) {
  ENTER(Ready);
  if (!Exists(ordinal)) return Refuse(kInvalidDevice, call, std::to_string(ordinal));
  *device = ordinal;
  return 0;
}

Result cuDeviceGetName(char* name, int size, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  const char* instance = DeviceAt(device).mig ? " MIG 1g.2gb" : "";
  std::snprintf(name, static_cast<size_t>(size), "%s%s", ModelOf(device).name, instance);
  return 0;
}

Result cuDeviceGetUuid_v2(void* uuid, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  std::memset(uuid, 0, 16);
  static_cast<uint8_t*>(uuid)[15] = static_cast<uint8_t>(DeviceAt(device).number + 1);
  return 0;
}

// The older form: of a MIG instance it gives the GPU's UUID.
Result cuDeviceGetUuid(void* uuid, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  std::memset(uuid, 0, 16);
  if (DeviceAt(device).mig) static_cast<uint8_t*>(uuid)[10] = 0x80;
  static_cast<uint8_t*>(uuid)[15] = static_cast<uint8_t>(DeviceAt(device).number + 1);
  return 0;
}

Result cuDeviceGetPCIBusId(char* text, int size, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device + 1);
  return 0;
}

Result cuDeviceGetByPCIBusId(int* device, const char* text) {
  ENTER(Ready);
  unsigned domain = 0, bus = 0;
  const bool read =
      std::sscanf(text, "%x:%x:", &domain, &bus) == 2 || std::sscanf(text, "%x:", &bus) == 1;
  if (!read || !Exists(static_cast<int>(bus) - 1)) return Refuse(kInvalidDevice, call, text);
  *device = static_cast<int>(bus) - 1;
  return 0;
}

Result cuDeviceCanAccessPeer(int* can, int device, int peer) {
  ENTER(Ready);
  if (!Exists(device) || !Exists(peer)) return Refuse(kInvalidDevice, call, "no such device");
  *can = 0;
  return 0;
}

Result cuDeviceComputeCapability(int* major, int* minor, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  *major = ModelOf(device).arch / 10;
  *minor = ModelOf(device).arch % 10;
  return 0;
}

Result cuDeviceTotalMem_v2(size_t* bytes, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  *bytes = MemoryOf(device);
  return 0;
}

Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  const Model& model = ModelOf(device);
  switch (attribute) {
    case 1:  // MAX_THREADS_PER_BLOCK
      *value = 1024;
      return 0;
    case 8:  // MAX_SHARED_MEMORY_PER_BLOCK
      *value = 48 * 1024;
      return 0;
    case 10:  // WARP_SIZE
      *value = 32;
      return 0;
    case 16:  // MULTIPROCESSOR_COUNT
      *value = model.processors;
      return 0;
    case 75:  // COMPUTE_CAPABILITY_MAJOR
      *value = model.arch / 10;
      return 0;
    case 76:  // COMPUTE_CAPABILITY_MINOR
      *value = model.arch % 10;
      return 0;
    case 97:  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      *value = model.shared_optin;
      return 0;
    default:
      return Refuse(kInvalidValue, call, "attribute " + std::to_string(attribute));
  }
}

Result cuDevicePrimaryCtxRetain(Context** context, int device) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  if (state.contexts.empty()) {
    for (size_t i = 0; i < GetBehaviour().devices.size(); ++i) {
      state.contexts.push_back(std::make_unique<Context>(Context{static_cast<int>(i)}));
    }
  }
  *context = state.contexts[device].get();
  ++(*context)->retained;
  return 0;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(Ready);
  if (!Exists(device) || state.contexts.empty() || state.contexts[device]->retained == 0) {
    return Refuse(kInvalidContext, call, "not retained");
  }
  --state.contexts[device]->retained;
  return 0;
}

Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  ENTER(Ready);
  if (!Exists(device)) return Refuse(kInvalidDevice, call, std::to_string(device));
  *flags = 0;
  *active = !state.contexts.empty() && state.contexts[device]->retained > 0;
  return 0;
}

Result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) {
  ENTER(Ready);
  return Exists(device) ? 0 : Refuse(kInvalidDevice, call, std::to_string(device));
}

Result cuCtxPushCurrent_v2(Context* context) {
  ENTER(Ready);
  if (!Retained(context)) return Refuse(kInvalidContext, call, "a context that is not retained");
  current.push_back(context);
  return 0;
}

// It replaces the top of this thread's stack; null only takes that away.
Result cuCtxSetCurrent(Context* context) {
  ENTER(Ready);
  if (context != nullptr && !Retained(context)) {
    return Refuse(kInvalidContext, call, "a context that is not retained");
  }
  if (!current.empty()) current.pop_back();
  if (context != nullptr) current.push_back(context);
  return 0;
}

Result cuCtxPopCurrent_v2(Context** context) {
  ENTER(ReadyInContext);
  if (context != nullptr) *context = current.back();
  current.pop_back();
  return 0;
}

Result cuCtxGetCurrent(Context** context) {
  ENTER(Ready);
  *context = current.empty() ? nullptr : current.back();
  return 0;
}

Result cuCtxGetDevice(int* device) {
  ENTER(ReadyInContext);
  *device = current.back()->device;
  return 0;
}

Result cuCtxSynchronize() {
  ENTER(ReadyInContext);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
