// The fake driver's modules and launches.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dl.h"
#include "state.h"

using namespace fake;

namespace {

using Launcher = decltype(&fw_emul_launch);

void* Emulation() {
  static void* library = [] {
    const std::string& path = GetBehaviour().kernels;
    void* opened = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!path.empty() && opened == nullptr) {
      std::fprintf(stderr, "fakecuda: FAKECUDA_KERNELS: %s\n", dlerror());
      std::abort();
    }
    return opened;
  }();
  return library;
}

// Compares what the program says of the kernel with what the emulation was compiled from.
Result Emulate(Function* function, const char* call) {
  if (Emulation() == nullptr) return 0;
  void* symbol = dlsym(Emulation(), ("fw_emul_" + function->name).c_str());
  if (symbol == nullptr) {
    return Refuse(kNotFound, call, "the emulation has no kernel " + function->name);
  }
  reinterpret_cast<FwEmulInfo>(symbol)(&function->emulated);
  const FwEmulKernel& emulated = function->emulated;
  std::vector<int32_t>& sizes = function->facts.param_sizes;
  if (!function->module->program.known) {
    sizes.assign(emulated.param_sizes, emulated.param_sizes + emulated.param_count);
  }
  if (static_cast<int32_t>(sizes.size()) != emulated.param_count) {
    return Refuse(kInvalidImage, call,
                  function->name + " has " + std::to_string(sizes.size()) +
                      " parameters in the image, " + std::to_string(emulated.param_count) +
                      " in the emulation");
  }
  for (int32_t i = 0; i < emulated.param_count; ++i) {
    if (sizes[i] == emulated.param_sizes[i]) continue;
    return Refuse(kInvalidImage, call,
                  function->name + ": parameter " + std::to_string(i) + " has " +
                      std::to_string(sizes[i]) + " bytes in the image, " +
                      std::to_string(emulated.param_sizes[i]) + " in the emulation");
  }
  return 0;
}

struct Launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

// The limits of every capability since 3.0, and what the kernel and the device allow.
Result CheckShape(const Function& function, const Launch& launch, const char* call) {
  constexpr uint32_t kGrid[] = {0x7fffffff, 65535, 65535};
  constexpr uint32_t kBlock[] = {1024, 1024, 64};
  constexpr int64_t kRegisters = 65536;  // of a multiprocessor
  int64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.grid[i] > kGrid[i]) {
      return Refuse(kInvalidValue, call,
                    "grid[" + std::to_string(i) + "] is " + std::to_string(launch.grid[i]));
    }
    if (launch.block[i] == 0 || launch.block[i] > kBlock[i]) {
      return Refuse(kInvalidValue, call,
                    "block[" + std::to_string(i) + "] is " + std::to_string(launch.block[i]));
    }
    threads *= launch.block[i];
  }
  const KernelFacts& facts = function.facts;
  if (threads > 1024 || (facts.max_threads > 0 && threads > facts.max_threads)) {
    return Refuse(kInvalidValue, call, "a block of " + std::to_string(threads) + " threads");
  }
  const int64_t warps = (threads + 31) / 32;
  if (facts.registers > 0 && facts.registers * warps * 32 > kRegisters) {
    return Refuse(kLaunchOutOfResources, call,
                  std::to_string(facts.registers) + " registers a thread for " +
                      std::to_string(threads) + " threads");
  }
  const int64_t shared = launch.shared_bytes + facts.static_shared;
  if (launch.shared_bytes > function.dynamic_shared ||
      shared > std::max<int64_t>(function.dynamic_shared, 48 * 1024)) {
    return Refuse(kInvalidValue, call,
                  std::to_string(shared) + " bytes of shared memory without cuFuncSetAttribute");
  }
  return 0;
}

// Takes a copy of each parameter, of the size that the image says, as the driver does.
Result RunKernel(const Function& function, const Launch& launch, void** params, const char* call) {
  if (function.emulated.run == nullptr) return 0;
  std::vector<std::vector<uint64_t>> copies;
  std::vector<void*> pointers;
  for (size_t i = 0; i < function.facts.param_sizes.size(); ++i) {
    const size_t size = static_cast<size_t>(function.facts.param_sizes[i]);
    copies.emplace_back((size + 7) / 8 + 1);
    std::memcpy(copies.back().data(), params[i], size);
    pointers.push_back(copies.back().data());
  }
  const auto run = reinterpret_cast<Launcher>(dlsym(Emulation(), "fw_emul_launch"));
  if (run == nullptr) return Refuse(kNotFound, call, "no fw_emul_launch in the emulation");
  char error[512] = "";
  if (run(function.emulated.run, pointers.data(), launch.grid, launch.block, launch.shared_bytes,
          error, sizeof error) == 0) {
    return 0;
  }
  return Refuse(kLaunchFailed, call, function.name + ": " + error);
}

Result Load(Module** module, const void* image, const char* call) {
  if (Capturing()) return Refuse(kCaptureUnsupported, call, "a stream is capturing");
  auto made = std::make_unique<Module>();
  made->context = current.back();
  std::string why;
  const Result result = LoadProgram(image, ModelOf(made->context->device).arch,
                                    GetBehaviour().version, &made->program, &why);
  if (result != 0) return Refuse(result, call, why);
  state.modules.insert(made.get());
  *module = made.release();
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuModuleGetLoadingMode(int* mode) {
  ENTER(Ready);
  *mode = 1;  // EAGER
  return 0;
}

Result cuModuleLoadData(Module** module, const void* image) {
  ENTER(ReadyInContext);
  return Load(module, image, call);
}

// The options of the PTX compiler are not looked at.
Result cuModuleLoadDataEx(Module** module, const void* image, unsigned, void*, void*) {
  ENTER(ReadyInContext);
  return Load(module, image, call);
}

Result cuModuleUnload(Module* module) {
  ENTER(ReadyInContext);
  if (state.modules.erase(module) == 0) return Refuse(kInvalidHandle, call, "no such module");
  for (const auto& function : module->functions) state.functions.erase(function.get());
  delete module;
  return 0;
}

Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER(ReadyInContext);
  if (state.modules.count(module) == 0) return Refuse(kInvalidHandle, call, "no such module");
  const Program& program = module->program;
  const auto found = program.kernels.find(name);
  if (program.known && found == program.kernels.end()) {
    return Refuse(kNotFound, call, std::string("the image has no kernel ") + name);
  }
  auto made = std::make_unique<Function>();
  made->name = name;
  made->module = module;
  if (program.known) made->facts = found->second;
  const Result result = Emulate(made.get(), call);
  if (result != 0) return result;
  *function = made.get();
  state.functions.insert(made.get());
  module->functions.push_back(std::move(made));
  return 0;
}

Result cuFuncSetAttribute(Function* function, int attribute, int value) {
  ENTER(ReadyInContext);
  if (state.functions.count(function) == 0) return Refuse(kInvalidHandle, call, "no such function");
  if (attribute != 8) {  // MAX_DYNAMIC_SHARED_SIZE_BYTES
    return Refuse(kInvalidValue, call, "attribute " + std::to_string(attribute));
  }
  const Model& model = ModelOf(function->module->context->device);
  if (value < 0 || value + function->facts.static_shared > model.shared_optin) {
    return Refuse(kInvalidValue, call, std::to_string(value) + " bytes of shared memory");
  }
  function->dynamic_shared = value;
  return 0;
}

Result cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      void* stream, void** params, void** extra) {
  ENTER(ReadyInContext);
  if (state.functions.count(function) == 0) return Refuse(kInvalidHandle, call, "no such function");
  if (function->module->context != current.back()) {
    return Refuse(kInvalidContext, call, "the kernel belongs to another context");
  }
  if (!KnownStream(stream)) return Refuse(kInvalidHandle, call, "no such stream");
  const Launch launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  if (const Result result = CheckShape(*function, launch, call)) return result;
  if (params == nullptr || extra != nullptr) return Refuse(kInvalidValue, call, "parameters");
  ++state.launches;
  state.last_stream = stream;
  state.last_kernel = function->name;
  char where[64];
  std::snprintf(where, sizeof where, " on device %d, stream %#" PRIxPTR,
                function->module->context->device, reinterpret_cast<uintptr_t>(stream));
  Note("launched " + function->name + where);
  const auto one = state.streams.find(static_cast<Stream*>(stream));
  if (one != state.streams.end() && (*one)->capturing) {
    ++state.captured;
    return 0;
  }
  return RunKernel(*function, launch, params, call);
}

}  // extern "C"
#pragma GCC visibility pop
