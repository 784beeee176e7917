#include "kernels/cpu/isa.h"

#include <cpuid.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace fw {
namespace {

// Saved by the operating system on a task switch, as XGETBV tells: CPUID alone does not.
constexpr uint64_t kSavesYmm = 0x06;  // SSE and AVX state
constexpr uint64_t kSavesZmm = 0xe6;  // and opmask and both halves of the ZMM state

uint64_t SavedState(uint32_t leaf1_ecx) {
  if ((leaf1_ecx & bit_OSXSAVE) == 0) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool Has(uint32_t flags, uint32_t wanted) { return (flags & wanted) == wanted; }

// 0 for none that serves, then one more for each of v2, avx2, avx512.
int MachineLevel() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
  const uint32_t leaf1 = ecx;
  if (!Has(leaf1, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B))
    return 0;
  const uint64_t saved = SavedState(leaf1);
  uint32_t leaf7 = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) leaf7 = ebx;
  const bool avx2 = (saved & kSavesYmm) == kSavesYmm && Has(leaf1, bit_AVX | bit_FMA | bit_F16C) &&
                    Has(leaf7, bit_AVX2);
  if (!avx2) return 1;
  const bool avx512 = (saved & kSavesZmm) == kSavesZmm &&
                      Has(leaf7, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
  return avx512 ? 3 : 2;
}

constexpr int kLevels = 3;
const FwCpuKernels* const kAll[kLevels] = {&fw_cpu_kernels_v2, &fw_cpu_kernels_avx2,
                                           &fw_cpu_kernels_avx512};

std::string Names(bool usable) {
  const int levels = usable ? MachineLevel() : kLevels;
  std::string names;
  for (int i = 0; i < levels; ++i) names += std::string(i > 0 ? " " : "") + kAll[i]->isa;
  return names;
}

struct Choice {
  const FwCpuKernels* kernels = nullptr;
  std::string error;
};

Choice Choose() {
  const int level = MachineLevel();
  const char* forced = std::getenv("FREEWHEEL_ISA");
  if (forced == nullptr || *forced == '\0') {
    if (level > 0) return {kAll[level - 1], ""};
    return {nullptr, "this CPU lacks x86-64-v2 (SSE4.2, POPCNT), the least that freewheel runs on"};
  }
  std::string known;
  for (int i = 0; i < kLevels; ++i) {
    if (std::string(forced) == kAll[i]->isa) {
      if (i < level) return {kAll[i], ""};
      return {nullptr, "FREEWHEEL_ISA=" + std::string(forced) +
                           ": this machine lacks it; the best here is " +
                           (level > 0 ? kAll[level - 1]->isa : "less than x86-64-v2")};
    }
    known += std::string(i > 0 ? ", " : "") + kAll[i]->isa;
  }
  return {nullptr, "FREEWHEEL_ISA=" + std::string(forced).substr(0, 64) +
                       ": no such instruction set in this library; it has " + known};
}

}  // namespace

const FwCpuKernels* CpuKernels(const FwExec* exec) {
  static const Choice choice = Choose();
  if (choice.kernels == nullptr && exec->error != nullptr && exec->error_size > 0) {
    std::snprintf(exec->error, static_cast<size_t>(exec->error_size), "%s", choice.error.c_str());
  }
  return choice.kernels;
}

const char* CpuIsas(bool usable) {
  static const std::string built = Names(false);
  static const std::string runs = Names(true);
  return (usable ? runs : built).c_str();
}

}  // namespace fw
