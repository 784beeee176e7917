// Runs a kernel's grid on one processor: a fiber for each thread of a block, blocks one after
// another. A fiber runs until it must wait at a barrier; which one runs next is FW_FIBER_ORDER's.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "cuda_words.h"
#include "stacks.h"

namespace fibers {

Place place;

namespace {

constexpr int kWarp = 32;
constexpr size_t kStaticSharedLimit = 48 * 1024;
constexpr size_t kSharedLimit = 227 * 1024;
constexpr size_t kMaxThreads = 1024;
constexpr int kPoison = 0xff;

// A meeting of `size` threads, again and again: `round` counts the meetings.
struct Barrier {
  int size = 0;
  int arrived = 0;
  uint64_t round = 0;
  const char* file = nullptr;  // where the first to arrive waits
  int line = 0;
};

struct Warp {
  Barrier barrier;
  uint64_t values[2][kWarp];  // by round, so that the next may be written while the last is read
};

struct Thread {
  uint3 index;
  Warp* warp;
  int lane;
  bool done;
  const Barrier* waits_at;  // null: ready to run
  uint64_t waits_for;       // runs again when the barrier's round is no longer this
};

struct SharedVariable {
  const void* site;
  size_t offset;
};

// Everything about the launch that runs; one at a time, under launch_lock.
struct Launch {
  void (*run)(void**);
  void** params;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier block;
  std::vector<SharedVariable> variables;
  size_t shared_used;     // bytes given out in this block
  size_t shared_dynamic;  // of which the launch asked for these
  std::string error;
};

std::mutex launch_lock;
Launch launch;
Thread* current;
Stacks stacks;
alignas(256) unsigned char shared_memory[kSharedLimit];

[[noreturn]] void abandon(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Ends the whole launch: the scheduler never resumes a fiber once there is an error.
void abandon(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  launch.error = text;
  stacks.leave();
  abort();
}

std::string name_of(const Thread& thread) {
  char text[128];
  snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", thread.index.x,
           thread.index.y, thread.index.z, place.block.x, place.block.y, place.block.z);
  return text;
}

void wait_at(Barrier& barrier, const char* file, int line) {
  if (barrier.arrived == 0) {
    barrier.file = file;
    barrier.line = line;
  } else if (barrier.line != line || strcmp(barrier.file, file) != 0) {
    abandon("divergent barrier: %s came to %s:%d while others wait at %s:%d",
            name_of(*current).c_str(), file, line, barrier.file, barrier.line);
  }
  if (++barrier.arrived == barrier.size) {
    barrier.arrived = 0;
    ++barrier.round;
    return;
  }
  current->waits_at = &barrier;
  current->waits_for = barrier.round;
  stacks.leave();
}

void fiber_body() {
  launch.run(launch.params);
  current->done = true;
  stacks.leave();
}

// The order in which the threads of a block get their turns.
class Order {
 public:
  // Returns false for a text that is not an order.
  bool parse(const char* text) {
    if (text == nullptr || *text == '\0' || strcmp(text, "ascending") == 0) return true;
    if (strcmp(text, "descending") == 0) {
      descending_ = true;
      return true;
    }
    if (strncmp(text, "shuffled:", 9) != 0) return false;
    char* end = nullptr;
    state_ = strtoull(text + 9, &end, 10) * 2 + 1;
    shuffled_ = true;
    return end != text + 9 && *end == '\0';
  }

  void start(size_t threads) {
    turns_.resize(threads);
    std::iota(turns_.begin(), turns_.end(), 0);
    if (descending_) std::reverse(turns_.begin(), turns_.end());
  }

  // One turn for each thread, in another order every time when shuffled.
  const std::vector<uint32_t>& next_turns() {
    for (size_t i = turns_.size(); shuffled_ && i > 1; --i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      std::swap(turns_[i - 1], turns_[(state_ >> 33) % i]);
    }
    return turns_;
  }

 private:
  bool descending_ = false, shuffled_ = false;
  uint64_t state_ = 1;
  std::vector<uint32_t> turns_;
};

void start_threads() {
  const dim3 size = place.block_size;
  for (Warp& warp : launch.warps) warp.barrier = Barrier{};
  for (size_t i = 0; i < launch.threads.size(); ++i) {
    const unsigned int number = static_cast<unsigned int>(i);
    Warp& warp = launch.warps[i / kWarp];
    ++warp.barrier.size;
    launch.threads[i] = {{number % size.x, number / size.x % size.y, number / size.x / size.y},
                         &warp,
                         static_cast<int>(i % kWarp),
                         false,
                         nullptr,
                         0};
    stacks.prepare(i, fiber_body);
  }
  launch.block = Barrier{};
  launch.block.size = static_cast<int>(launch.threads.size());
}

void start_shared_memory() {
  launch.variables.clear();
  memset(shared_memory, kPoison, launch.shared_used);
  launch.shared_used = launch.shared_dynamic;
}

// What to say when nobody can go on: someone waits for threads that left or wait elsewhere.
std::string describe_deadlock() {
  for (const Thread& thread : launch.threads) {
    if (thread.done) continue;
    const Barrier& barrier = *thread.waits_at;
    char text[256];
    snprintf(text, sizeof text, " waits at %s:%d, where only %d of %d threads came", barrier.file,
             barrier.line, barrier.arrived, barrier.size);
    return "divergent barrier: " + name_of(thread) + text;
  }
  return "";
}

void run_block(Order& order) {
  start_shared_memory();
  start_threads();
  order.start(launch.threads.size());
  size_t left = launch.threads.size();
  while (left > 0) {
    bool progress = false;
    for (const uint32_t turn : order.next_turns()) {
      Thread& thread = launch.threads[turn];
      if (thread.done) continue;
      if (thread.waits_at != nullptr && thread.waits_at->round == thread.waits_for) continue;
      thread.waits_at = nullptr;
      current = &thread;
      place.thread = thread.index;
      stacks.enter(turn);
      if (!launch.error.empty()) return;
      progress = true;
      if (thread.done) --left;
    }
    if (!progress) {
      launch.error = describe_deadlock();
      return;
    }
  }
}

void run_grid(Order& order) {
  const dim3 grid = place.grid_size;
  for (unsigned int z = 0; z < grid.z; ++z) {
    for (unsigned int y = 0; y < grid.y; ++y) {
      for (unsigned int x = 0; x < grid.x; ++x) {
        place.block = {x, y, z};
        run_block(order);
        if (!launch.error.empty()) return;
      }
    }
  }
}

// Prepares the launch; fills launch.error when it cannot be run.
void prepare(const uint32_t block[3], size_t shared_bytes) {
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  launch.error.clear();
  if (threads == 0 || threads > kMaxThreads) {
    launch.error = "a block of " + std::to_string(threads) + " threads cannot be run";
  } else if (shared_bytes > kSharedLimit) {
    launch.error = std::to_string(shared_bytes) + " bytes of shared memory are too many";
  } else if (!stacks.reserve(threads)) {
    launch.error = "no memory for the fibers' stacks";
  } else {
    launch.threads.resize(threads);
    launch.warps.resize((threads + kWarp - 1) / kWarp);
    launch.shared_used = kSharedLimit;
    launch.shared_dynamic = shared_bytes;
  }
}

}  // namespace

void block_barrier(const char* file, int line) { wait_at(launch.block, file, line); }

int lane() { return current->lane; }

uint64_t warp_exchange(unsigned int mask, uint64_t value, int from_lane, const char* file,
                       int line) {
  Warp& warp = *current->warp;
  if (mask != 0xffffffffu || warp.barrier.size != kWarp) {
    abandon("%s:%d: the emulation knows only shuffles of whole warps", file, line);
  }
  if (from_lane < 0 || from_lane >= kWarp) {
    abandon("%s:%d: a shuffle from lane %d", file, line, from_lane);
  }
  uint64_t* values = warp.values[warp.barrier.round % 2];
  values[current->lane] = value;
  wait_at(warp.barrier, file, line);
  return values[from_lane];
}

void* shared_variable(const void* site, size_t bytes, size_t alignment) {
  for (const SharedVariable& variable : launch.variables) {
    if (variable.site == site) return shared_memory + variable.offset;
  }
  const size_t offset = (launch.shared_used + alignment - 1) / alignment * alignment;
  if (offset + bytes > launch.shared_dynamic + kStaticSharedLimit ||
      offset + bytes > kSharedLimit) {
    abandon("more static shared memory than %zu bytes", kStaticSharedLimit);
  }
  launch.shared_used = offset + bytes;
  launch.variables.push_back({site, offset});
  return shared_memory + offset;
}

}  // namespace fibers

extern "C" int32_t fw_emul_launch(void (*run)(void**), void** params, const uint32_t grid[3],
                                  const uint32_t block[3], size_t shared_bytes, char* error,
                                  size_t error_size) {
  const std::lock_guard<std::mutex> guard(fibers::launch_lock);
  fibers::Launch& launch = fibers::launch;
  fibers::Order order;
  fibers::prepare(block, shared_bytes);
  if (!order.parse(getenv("FW_FIBER_ORDER"))) {
    launch.error = "FW_FIBER_ORDER is none of ascending, descending, shuffled:SEED";
  }
  if (launch.error.empty()) {
    launch.run = run;
    launch.params = params;
    fibers::place.block_size = {block[0], block[1], block[2]};
    fibers::place.grid_size = {grid[0], grid[1], grid[2]};
    fibers::run_grid(order);
  }
  if (launch.error.empty()) return 0;
  if (error != nullptr && error_size > 0) {
    snprintf(error, error_size, "%s", launch.error.c_str());
  }
  return 1;
}
