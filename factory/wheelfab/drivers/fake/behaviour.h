// How the fake driver behaves, read once from the environment:
//
//   FAKECUDA_DEVICES   capabilities, "8.0,9.0" (default "8.0"); "none": cuInit answers 100
//   FAKECUDA_MIG       which of them are MIG instances: "0,2", or "all"; such a device has a UUID
//                      of its own (MIG-...), an eighth of the GPU's memory and processors
//   CUDA_VISIBLE_DEVICES  as NVIDIA's drivers read it; of the UUIDs, those that the fake gives
//   FAKECUDA_VERSION   CUDA release of the driver, "12010" for 12.1 (default 12040)
//   FAKECUDA_FAIL      "cuInit=100,cuLaunchKernel=segv,load=hang,*=34": what a call does instead of
//                      its work: a result code; segv (writes to address 0: SEGV_MAPERR); gp (writes
//                      to an address that x86-64 does not have: SI_KERNEL); abort; exit:CODE, by
//                      exit(); hang; deaf, a hang with every signal blocked that can be; or before
//                      its work: slow:MILLISECONDS. "load" is the library's constructor, "*" every
//                      call that has no entry of its own
//   FAKECUDA_LOG       file that gets a line a call: "PID TID cuInit", and "PID TID refused ..."
//   FAKECUDA_KERNELS   library that runs the kernels, with the interface of include/emulation.h;
//                      without it launches are checked, not run
#pragma once

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace fake {

using Result = int32_t;

// Results of cuda.h that the fake gives.
constexpr Result kInvalidValue = 1;
constexpr Result kNotInitialized = 3;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidDevice = 101;
constexpr Result kInvalidImage = 200;
constexpr Result kInvalidContext = 201;
constexpr Result kNoBinaryForGpu = 209;
constexpr Result kInvalidPtx = 218;
constexpr Result kUnsupportedPtxVersion = 222;
constexpr Result kInvalidHandle = 400;
constexpr Result kNotFound = 500;
constexpr Result kLaunchOutOfResources = 701;
constexpr Result kLaunchFailed = 719;
constexpr Result kNotSupported = 801;
constexpr Result kCaptureUnsupported = 900;

// What Enter gives for a call that shall die; no driver's results.
constexpr Result kDieOfNull = INT_MIN;
constexpr Result kDieOfWildPointer = INT_MIN + 1;
constexpr Result kDieOfAbort = INT_MIN + 2;

// What the fake knows of the GPUs with one capability.
struct Model {
  int32_t arch;  // 80 for 8.0
  const char* name;
  int32_t processors;
  int32_t shared_optin;  // bytes of shared memory a block may ask for
};

struct Device {
  Model model;
  int32_t number;  // before CUDA_VISIBLE_DEVICES; its UUID has it
  bool mig;
};

struct Behaviour {
  std::vector<Device> devices;
  int32_t version = 12040;
  std::string kernels;
  std::string log;
  std::map<std::string, std::string> fail;
};

const Behaviour& GetBehaviour();

// Logs and counts a call, then does what FAKECUDA_FAIL asks; 0 when the call shall do its work.
Result Enter(const char* call);

// Ends a call with the result of Enter. Inlined, so that who dies is the entry point that was
// called, with its name in every backtrace.
[[gnu::always_inline]] inline Result Leave(Result result) {
  if (result == kDieOfAbort) std::abort();
  if (result == kDieOfNull || result == kDieOfWildPointer) {
    volatile uintptr_t where = result == kDieOfNull ? 0 : uintptr_t{1} << 63;
    *reinterpret_cast<volatile int*>(where) = 1;
  }
  return result;
}

// Logs what a call did.
void Note(const std::string& what);

// Logs why a call is refused, keeps the reason, and returns `result`.
Result Refuse(Result result, const char* call, const std::string& why);

// How often Enter was called for `call`.
int64_t CallCount(const std::string& call);

// The reason given by the last Refuse, "" if there was none.
const char* LastRefusal();

}  // namespace fake
