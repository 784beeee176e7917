// A CUDA device for a CPU build of torch: its memory is the host's, so that an operation on a
// tensor of device cuda:0 goes to its CUDA implementation, and that runs under the fake driver. The
// soname is libtorch_cuda.so, where a binding looks for aoti_torch_get_current_cuda_stream.
//
// Operations of torch itself run on the CPU and are copied back; those of other libraries need a
// CUDA implementation of their own, as on a real device.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_copy_from_and_resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace {

thread_local c10::DeviceIndex device_index = 0;
std::atomic<void*> streams[64];
std::atomic<int64_t> stream_requests{0};

// As many as the fake driver shows.
c10::DeviceIndex DeviceCount() {
  const char* devices = std::getenv("FAKECUDA_DEVICES");
  if (devices == nullptr) return 1;
  if (std::strcmp(devices, "none") == 0) return 0;
  return static_cast<c10::DeviceIndex>(1 +
                                       std::count(devices, devices + std::strlen(devices), ','));
}

c10::Device CudaDevice(c10::DeviceIndex index) { return {c10::DeviceType::CUDA, index}; }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = CudaDevice(device_index);
    device_index = device.index();
    return before;
  }
  c10::Device getDevice() const override { return CudaDevice(device_index); }
  void setDevice(c10::Device device) const override { device_index = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    device_index = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return DeviceCount(); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// What torch asks of its CUDA part, of which there is none in a CPU build.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return DeviceCount() > 0; }
#else
  void initCUDA() const override {}
#endif
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DeviceCount(); }
  c10::DeviceIndex getCurrentDevice() const override { return device_index; }
  void setCurrentDevice(c10::DeviceIndex index) const override { device_index = index; }
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

// What is allocated. The fake driver, once it is loaded, is told how much, so that it has an answer
// to a question after free memory.
class Ledger {
 public:
  void Add(void* data, c10::DeviceIndex device, size_t bytes) {
    const std::lock_guard<std::mutex> hold(lock_);
    allocations_[data] = {device, bytes};
    Count(device, static_cast<int64_t>(bytes));
  }
  void Remove(void* data) {
    const std::lock_guard<std::mutex> hold(lock_);
    const auto found = allocations_.find(data);
    if (found == allocations_.end()) return;
    Count(found->second.first, -static_cast<int64_t>(found->second.second));
    allocations_.erase(found);
  }

 private:
  void Count(c10::DeviceIndex device, int64_t bytes) {
    held_[device] += bytes;
    if (tell_ == nullptr) {
      void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
      if (driver != nullptr) tell_ = reinterpret_cast<Tell>(dlsym(driver, "fakecuda_hold"));
    }
    if (tell_ != nullptr) tell_(device, held_[device]);
  }

  using Tell = void (*)(int, int64_t);
  std::mutex lock_;
  std::map<void*, std::pair<c10::DeviceIndex, size_t>> allocations_;
  std::map<c10::DeviceIndex, int64_t> held_;
  Tell tell_ = nullptr;
};
Ledger& ledger = *new Ledger;  // tensors outlive whatever has a destructor

void Free(void* data) {
  ledger.Remove(data);
  std::free(data);
}

// Fresh memory is all ones, NaN in every floating-point type: what a kernel leaves out is seen.
struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    constexpr size_t kAlignment = 512;
    void* data = nullptr;
    if (bytes > 0) {
      const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      data = std::aligned_alloc(kAlignment, rounded);
      TORCH_CHECK(data != nullptr, "out of memory");
      std::memset(data, 0xff, rounded);
      ledger.Add(data, device_index, rounded);
    }
    return {data, data, &Free, CudaDevice(device_index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
HostAllocator allocator;

constexpr c10::DispatchKeySet kCuda(c10::DispatchKey::CUDA);

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(CudaDevice(device_index)));
  return at::detail::empty_generic(size, &allocator, kCuda, c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(CudaDevice(device_index)));
  return at::detail::empty_strided_generic(size, stride, &allocator, kCuda,
                                           c10::dtype_or_default(dtype));
}

// The same memory as a CPU tensor.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor& Copy(at::Tensor& self, const at::Tensor& source, bool) {
  OnHost(self).copy_(OnHost(source));
  return self;
}

// How an operation that ran on the CPU gives its result to `target`, which an out= argument may
// have made with no elements yet.
at::Tensor CopyFromAndResize(const at::Tensor& self, const at::Tensor& target) {
  if (self.sizes() != target.sizes()) {
    const c10::DeviceGuard guard(target.device());
    const size_t bytes = self.numel() * self.itemsize();
    target.storage().set_data_ptr_noswap(allocator.allocate(bytes));
    target.storage().set_nbytes(bytes);
    target.unsafeGetTensorImpl()->set_sizes_contiguous(self.sizes());
  }
  OnHost(target).copy_(OnHost(self));
  return target;
}

void Fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const std::string& name = operation.schema().name();
  TORCH_CHECK_NOT_IMPLEMENTED(name.rfind("aten::", 0) == 0, name,
                              " has no implementation for device cuda");
  at::native::cpu_fallback(operation, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator);
  m.impl("empty.memory_format", &Empty);
  m.impl("empty_strided", &EmptyStrided);
  m.impl("copy_", &Copy);
  m.impl("_copy_from_and_resize", &CopyFromAndResize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

#pragma GCC visibility push(default)
extern "C" {

// As libtorch_cuda.so has it: the cudaStream_t that torch would launch on.
int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** stream) {
  ++stream_requests;
  if (device < 0 || device >= DeviceCount()) return 1;
  *stream = streams[device].load();
  return 0;
}

// For tests: what the function above gives, and how often it was called.
void host_cuda_set_stream(int32_t device, void* stream) { streams[device] = stream; }
int64_t host_cuda_stream_requests() { return stream_requests; }

}  // extern "C"
#pragma GCC visibility pop
