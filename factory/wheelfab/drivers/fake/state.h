// What the fake driver holds: contexts, modules, functions, streams, and the counters for tests.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../include/emulation.h"
#include "behaviour.h"
#include "program.h"

namespace fake {

struct Context {
  int device;
  int retained = 0;
};

struct Module;

struct Function {
  std::string name;
  Module* module;
  fake::KernelFacts facts;
  FwEmulKernel emulated{};
  int64_t dynamic_shared = 48 * 1024;  // what cuFuncSetAttribute raises
};

struct Module {
  Context* context;
  fake::Program program;
  std::vector<std::unique_ptr<Function>> functions;
};

struct Stream {
  bool capturing = false;
};

struct Event {
  bool recorded = false;
};

struct Allocation {
  int device;
  size_t bytes;
};

struct State {
  std::mutex lock;  // of everything below
  std::vector<std::unique_ptr<Context>> contexts;
  std::set<Module*> modules;
  std::set<Function*> functions;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<void*, Allocation> allocations;  // of cuMemAlloc
  std::map<int, int64_t> held;              // bytes on a device that fakecuda_hold told of
  int64_t launches = 0;
  int64_t captured = 0;
  void* last_stream = nullptr;
  std::string last_kernel;
};

extern State state;
extern std::atomic<pid_t> process;                  // that called cuInit, 0 before
extern thread_local std::vector<Context*> current;  // this thread's stack of contexts

const Device& DeviceAt(int device);
const Model& ModelOf(int device);
bool Exists(int device);

// Bytes of memory: a GPU's, or of a MIG instance its part.
size_t MemoryOf(int device);

// Null, 1 and 2 are the default streams of cuda.h: legacy, legacy by name, per thread.
bool KnownStream(void* stream);

// Whether any stream is capturing.
bool Capturing();

// What comes before every call's own work. A driver answers nothing before cuInit, and nothing in a
// child forked after it.
Result Ready(const char* call);
Result ReadyInContext(const char* call);

}  // namespace fake

// The beginning of an entry point: log, count, the failure asked for, `check`, then the lock.
#define ENTER(check)                      \
  const char* const call = __func__;      \
  if (const Result early = check(call)) { \
    return Leave(early);                  \
  }                                       \
  const std::lock_guard<std::mutex> hold(state.lock)
