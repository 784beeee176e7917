// How the CUDA runtime finds the driver's functions, and those that this driver has and refuses.
#include <cstring>

#include "../include/entry_points.h"
#include "dl.h"
#include "state.h"

using namespace fake;

namespace {

constexpr int kFirstOfSecondForm = 12000;  // CUDA release that changed cuGetProcAddress itself
constexpr int kSymbolNotFound = 1;         // CUdriverProcAddressQueryResult

// What the loader would find: an entry point that was left out of this library is none.
void* Exported(const std::string& name) {
  static void* self = [] {
    Dl_info where;
    return dladdr(reinterpret_cast<void*>(&state), &where) != 0
               ? dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD)
               : nullptr;
  }();
  return self != nullptr ? dlsym(self, name.c_str()) : nullptr;
}

// The newest form of a function that takes the types of cuda.h: _v3 and later ones are refused
// everywhere, and a caller of CUDA 12 asks for the second form by the bare name.
void* Find(const std::string& name, int version) {
  const bool bare = name == "cuGetProcAddress" && version < kFirstOfSecondForm;
  void* second = bare ? nullptr : Exported(name + "_v2");
  return second != nullptr ? second : Exported(name);
}

Result Refused(const char* call) {
  const Result result = Ready(call);
  return result != 0 ? result : Refuse(kNotSupported, call, "the fake does not have it");
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuGetProcAddress(const char* name, void** function, int version, uint64_t) {
  if (const Result early = Enter(__func__)) return Leave(early);
  *function = Find(name, version);
  return *function != nullptr ? 0 : kNotFound;
}

Result cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t, int* status) {
  if (const Result early = Enter(__func__)) return Leave(early);
  *function = Find(name, version);
  if (status != nullptr) *status = *function != nullptr ? 0 : kSymbolNotFound;
  return *function != nullptr ? 0 : kNotFound;
}

// The private tables by which NVIDIA's runtime makes sure of NVIDIA's driver: there are none, which
// it takes for an error like any other.
Result cuGetExportTable(const void** table, const void*) {
  if (const Result early = Enter(__func__)) return Leave(early);
  *table = nullptr;
  return kNotFound;
}

#define REFUSE(name) \
  Result name() { return Leave(Refused(#name)); }
WHEELFAB_REFUSED(REFUSE)

}  // extern "C"
#pragma GCC visibility pop
