// The fake driver's streams and memory, and what tests ask it.
#include <cstdlib>
#include <cstring>

#include "state.h"

using namespace fake;

#pragma GCC visibility push(default)
extern "C" {

Result cuStreamCreate(Stream** stream, unsigned) {
  ENTER(ReadyInContext);
  *stream = new Stream;
  state.streams.insert(*stream);
  return 0;
}

Result cuStreamDestroy_v2(Stream* stream) {
  ENTER(ReadyInContext);
  if (state.streams.erase(stream) == 0) return Refuse(kInvalidHandle, call, "no such stream");
  delete stream;
  return 0;
}

Result cuStreamSynchronize(Stream* stream) {
  ENTER(ReadyInContext);
  return KnownStream(stream) ? 0 : Refuse(kInvalidHandle, call, "no such stream");
}

// Launches into a capturing stream are counted, not run; a module load meanwhile is refused.
Result cuStreamBeginCapture_v2(Stream* stream, int) {
  ENTER(ReadyInContext);
  if (state.streams.count(stream) == 0) return Refuse(kInvalidHandle, call, "no such stream");
  stream->capturing = true;
  return 0;
}

Result cuStreamEndCapture(Stream* stream, void** graph) {
  ENTER(ReadyInContext);
  if (state.streams.count(stream) == 0 || !stream->capturing) {
    return Refuse(kInvalidHandle, call, "not capturing");
  }
  stream->capturing = false;
  *graph = stream;
  return 0;
}

Result cuMemAlloc_v2(void** pointer, size_t bytes) {
  ENTER(ReadyInContext);
  if (bytes == 0) return Refuse(kInvalidValue, call, "0 bytes");
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *pointer != nullptr ? 0 : 2;
}

Result cuMemFree_v2(void* pointer) {
  ENTER(ReadyInContext);
  std::free(pointer);
  return 0;
}

Result cuMemGetInfo_v2(size_t* unused, size_t* total) {
  ENTER(ReadyInContext);
  *total = size_t{16} << 30;
  *unused = size_t{15} << 30;
  return 0;
}

Result cuMemcpyHtoD_v2(void* to, const void* from, size_t bytes) {
  ENTER(ReadyInContext);
  std::memcpy(to, from, bytes);
  return 0;
}

Result cuMemcpyDtoH_v2(void* to, const void* from, size_t bytes) {
  ENTER(ReadyInContext);
  std::memcpy(to, from, bytes);
  return 0;
}

int64_t fakecuda_calls(const char* name) { return CallCount(name); }

const char* fakecuda_last_refusal() { return LastRefusal(); }

int64_t fakecuda_launches() {
  const std::lock_guard<std::mutex> hold(state.lock);
  return state.launches;
}

int64_t fakecuda_captured() {
  const std::lock_guard<std::mutex> hold(state.lock);
  return state.captured;
}

void* fakecuda_last_stream() {
  const std::lock_guard<std::mutex> hold(state.lock);
  return state.last_stream;
}

const char* fakecuda_last_kernel() {
  const std::lock_guard<std::mutex> hold(state.lock);
  return state.last_kernel.c_str();
}

// How many contexts are on this thread's stack: an operation leaves as many as it found.
int64_t fakecuda_current_contexts() { return static_cast<int64_t>(current.size()); }

}  // extern "C"
#pragma GCC visibility pop
