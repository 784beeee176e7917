#include "device.h"

#include <atomic>
#include <cassert>
#include <cstring>
#include <vector>

namespace fw {
namespace {

constexpr int32_t kMaxDevices = 256;

// CUdevice_attribute and CUfunction_attribute of cuda.h.
constexpr int kMultiprocessorCount = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;
constexpr int kMaxSharedPerBlockOptin = 97;
constexpr int kMaxDynamicSharedSize = 8;

std::mutex devices_lock;
std::atomic<Device*> devices[kMaxDevices];

std::string Shape(const uint32_t size[3]) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
}

const FwImage* FindImage(const char* name) {
  for (int32_t i = 0; i < fw_image_count; ++i) {
    if (std::strcmp(fw_images[i].name, name) == 0) return &fw_images[i];
  }
  return nullptr;
}

}  // namespace

Device::Device(const Driver* driver, int32_t ordinal) : driver_(driver) {
  facts_.ordinal = ordinal;
  facts_.driver_version = driver->version();
  text_ = "CUDA device " + std::to_string(ordinal);
}

Device* Device::Get(int32_t ordinal, std::string* error) {
  // First, because it notices a fork, after which a lock may stay held for ever.
  const Driver* driver = Driver::Get(error);
  if (driver == nullptr) return nullptr;
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    *error = "there is no CUDA device " + std::to_string(ordinal);
    return nullptr;
  }
  Device* device = devices[ordinal].load(std::memory_order_acquire);
  if (device != nullptr) return device;
  const std::lock_guard<std::mutex> hold(devices_lock);
  device = devices[ordinal].load(std::memory_order_acquire);
  if (device != nullptr) return device;
  device = new Device(driver, ordinal);  // lives as long as the process, like the driver
  *error = device->Start();
  if (!error->empty()) {
    delete device;
    return nullptr;
  }
  devices[ordinal].store(device, std::memory_order_release);
  return device;
}

std::string Device::Start() {
  int count = 0;
  std::string error = driver_->Check(driver_->cuDeviceGetCount(&count), "cuDeviceGetCount", text_);
  if (!error.empty()) return error;
  if (facts_.ordinal >= count) {
    return "there is no " + text_ + ": the driver shows " + std::to_string(count) +
           (count == 1 ? " device" : " devices");
  }
  char name[256] = "";
  error = driver_->Check(driver_->cuDeviceGet(&handle_, facts_.ordinal), "cuDeviceGet", text_);
  if (!error.empty()) return error;
  error = driver_->Check(driver_->cuDeviceGetName(name, sizeof name, handle_), "cuDeviceGetName",
                         text_);
  if (error.empty()) error = Attribute(kCapabilityMajor, &facts_.capability.major);
  if (error.empty()) error = Attribute(kCapabilityMinor, &facts_.capability.minor);
  if (error.empty()) error = Attribute(kMultiprocessorCount, &processors_);
  if (error.empty()) error = Attribute(kMaxSharedPerBlockOptin, &shared_limit_);
  if (!error.empty()) return error;
  facts_.name = name;
  text_ += " (" + facts_.name + ", capability " + std::to_string(facts_.capability.major) + "." +
           std::to_string(facts_.capability.minor) + ")";
  return driver_->Check(driver_->cuDevicePrimaryCtxRetain(&context_, handle_),
                        "cuDevicePrimaryCtxRetain", text_);
}

std::string Device::Attribute(int attribute, int32_t* value) const {
  return driver_->Check(driver_->cuDeviceGetAttribute(value, attribute, handle_),
                        "cuDeviceGetAttribute",
                        "attribute " + std::to_string(attribute) + " of " + text_);
}

template <typename Work>
std::string Device::InContext(const Work& work) const {
  const CUresult pushed = driver_->cuCtxPushCurrent_v2(context_);
  if (pushed != 0) return driver_->Check(pushed, "cuCtxPushCurrent_v2", "the context of " + text_);
  std::string error = work();
  CUcontext context = nullptr;
  const CUresult popped = driver_->cuCtxPopCurrent_v2(&context);
  assert(popped != 0 || context == context_);
  if (popped == 0 || !error.empty()) return error;
  return driver_->Check(popped, "cuCtxPopCurrent_v2", "the context of " + text_);
}

std::string Device::Launch(const FwLaunch& launch, const void* args, void* stream) {
  CUfunction function = nullptr;
  const std::string error = Find(launch.image, launch.kernel, launch.shared_bytes, &function);
  if (!error.empty()) return error;
  void* params[] = {const_cast<void*>(args)};
  return InContext([&] {
    const CUresult result = driver_->cuLaunchKernel(
        function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
        launch.block[2], launch.shared_bytes, static_cast<CUstream>(stream), params, nullptr);
    if (result == 0) return std::string();
    return driver_->Check(result, "cuLaunchKernel",
                          std::string(launch.kernel) + ", grid " + Shape(launch.grid) + ", block " +
                              Shape(launch.block) + ", " + std::to_string(launch.shared_bytes) +
                              " bytes of dynamic shared memory, on " + text_);
  });
}

std::string Device::Load(const FwImageKernels& image) {
  for (int32_t i = 0; i < image.count; ++i) {
    CUfunction function = nullptr;
    const std::string error = Find(image.image, image.kernels[i], 0, &function);
    if (!error.empty()) return error;
  }
  return "";
}

std::string Device::Find(const char* image, const char* kernel, uint32_t shared_bytes,
                         CUfunction* function) {
  const std::lock_guard<std::mutex> hold(lock_);
  auto found = kernels_.find(kernel);
  if (found == kernels_.end()) {
    CUmodule module = nullptr;
    std::string error = FindModule(image, &module);
    if (!error.empty()) return error;
    Kernel made;
    error = InContext([&] {
      return driver_->Check(driver_->cuModuleGetFunction(&made.function, module, kernel),
                            "cuModuleGetFunction",
                            std::string(kernel) + " in " + image + " on " + text_);
    });
    if (!error.empty()) return error;
    found = kernels_.emplace(kernel, made).first;
  }
  *function = found->second.function;
  if (shared_bytes <= found->second.shared_bytes) return "";
  return Allow(kernel, shared_bytes, &found->second);
}

std::string Device::FindModule(const char* image, CUmodule* module) {
  const auto found = modules_.find(image);
  if (found != modules_.end()) {
    *module = found->second;
    return "";
  }
  const FwImage* embedded = FindImage(image);
  if (embedded == nullptr)
    return std::string("this freewheel holds no device image named ") + image;
  const Fatbin fatbin = ReadFatbin(embedded->begin, embedded->end);
  if (!fatbin.error.empty()) return std::string("device image ") + image + ": " + fatbin.error;
  const ImageEntry* entry = ChooseImage(fatbin.entries, facts_.capability, facts_.driver_version);
  if (entry == nullptr) return NoImageFits(image, fatbin.entries, facts_);
  const std::vector<uint8_t> bytes = ImageForDriver(*entry);
  const std::string error = InContext([&] {
    return driver_->Check(driver_->cuModuleLoadData(module, bytes.data()), "cuModuleLoadData",
                          std::string("image ") + image + " for " + ArchName(*entry) + " on " +
                              text_ + ", driver for CUDA " + ReleaseName(facts_.driver_version) +
                              ",");
  });
  if (error.empty()) modules_.emplace(image, *module);
  return error;
}

std::string Device::Allow(const char* name, uint32_t shared_bytes, Kernel* kernel) const {
  if (shared_bytes > static_cast<uint32_t>(shared_limit_)) {
    return std::string(name) + " needs " + std::to_string(shared_bytes) +
           " bytes of shared memory a block; " + text_ + " has " + std::to_string(shared_limit_);
  }
  const std::string error = InContext([&] {
    return driver_->Check(
        driver_->cuFuncSetAttribute(kernel->function, kMaxDynamicSharedSize,
                                    static_cast<int>(shared_bytes)),
        "cuFuncSetAttribute",
        std::to_string(shared_bytes) + " bytes of shared memory for " + name + " on " + text_);
  });
  if (error.empty()) kernel->shared_bytes = shared_bytes;
  return error;
}

}  // namespace fw
