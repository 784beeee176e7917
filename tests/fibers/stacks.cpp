// The stacks and the switch of stacks.h.
#include "stacks.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

namespace fibers {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kStride = kStackBytes + kPage;  // a guard page below each stack

}  // namespace

Stacks::~Stacks() {
  if (memory_ != nullptr) munmap(memory_, count_ * kStride);
}

bool Stacks::reserve(size_t count) {
  if (count <= count_) return true;
  void* memory = mmap(nullptr, count * kStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (memory_ != nullptr) munmap(memory_, count_ * kStride);
  memory_ = static_cast<unsigned char*>(memory);
  count_ = count;
  fibers_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (mprotect(memory_ + i * kStride, kPage, PROT_NONE) != 0) return false;
  }
  return true;
}

#ifdef FIBERS_UCONTEXT

void Stacks::prepare(size_t index, void (*body)()) {
  ucontext_t& fiber = fibers_[index];
  getcontext(&fiber);
  fiber.uc_stack.ss_sp = memory_ + index * kStride + kPage;
  fiber.uc_stack.ss_size = kStackBytes;
  fiber.uc_link = nullptr;
  makecontext(&fiber, body, 0);
}

void Stacks::enter(size_t index) {
  current_ = index;
  swapcontext(&scheduler_, &fibers_[index]);
}

void Stacks::leave() { swapcontext(&fibers_[current_], &scheduler_); }

#else

// Saves the registers that a call keeps on the running stack, stores where that is, and takes up
// the other one. Rounding modes and the like are never changed, so they are not saved.
extern "C" void fw_fiber_switch(void** save, void* load);
__asm__(
    ".text\n"
    ".hidden fw_fiber_switch\n"
    ".globl fw_fiber_switch\n"
    ".type fw_fiber_switch, @function\n"
    "fw_fiber_switch:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size fw_fiber_switch, . - fw_fiber_switch\n");

// The stack as fw_fiber_switch would have left it: six registers, then where to go on, then a
// return address of nowhere, which also gives the alignment that a function expects at its start.
void Stacks::prepare(size_t index, void (*body)()) {
  void** top = reinterpret_cast<void**>(memory_ + (index + 1) * kStride);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(body);
  top -= 6;
  memset(top, 0, 6 * sizeof *top);
  fibers_[index] = top;
}

void Stacks::enter(size_t index) {
  current_ = index;
  fw_fiber_switch(&scheduler_, fibers_[index]);
}

void Stacks::leave() { fw_fiber_switch(&fibers_[current_], scheduler_); }

#endif

}  // namespace fibers
