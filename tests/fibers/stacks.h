// Stacks of their own for the threads of one block, and the switch between them and the scheduler.
#pragma once

#include <stddef.h>

#include <vector>

#if !defined(__x86_64__) && !defined(FIBERS_UCONTEXT)
#define FIBERS_UCONTEXT
#endif

#ifdef FIBERS_UCONTEXT
#include <ucontext.h>
#endif

namespace fibers {

class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks();

  // Makes sure that there are `count` stacks, each with a guard page; false without memory.
  bool reserve(size_t count);
  // Lets fiber `index` begin at `body`, which must never return, on its next enter.
  void prepare(size_t index, void (*body)());
  // Scheduler: runs fiber `index` until it leaves.
  void enter(size_t index);
  // Fiber: back to the scheduler.
  void leave();

 private:
  unsigned char* memory_ = nullptr;
  size_t count_ = 0;
  size_t current_ = 0;
#ifdef FIBERS_UCONTEXT
  std::vector<ucontext_t> fibers_;
  ucontext_t scheduler_;
#else
  std::vector<void*> fibers_;  // stack pointers
  void* scheduler_ = nullptr;
#endif
};

}  // namespace fibers
