// The fake driver's streams, events and memory, and what tests ask it. Nothing is asynchronous: a
// call is over when it returns.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "state.h"

using namespace fake;

namespace {

// Bytes in use on a device: what the driver gave out, and what its user says.
int64_t HeldOn(int device) {
  const auto told = state.held.find(device);
  int64_t bytes = told == state.held.end() ? 0 : told->second;
  for (const auto& [pointer, allocation] : state.allocations) {
    if (allocation.device == device) bytes += static_cast<int64_t>(allocation.bytes);
  }
  return bytes;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuStreamCreate(Stream** stream, unsigned) {
  ENTER(ReadyInContext);
  *stream = new Stream;
  state.streams.insert(*stream);
  return 0;
}

Result cuStreamCreateWithPriority(Stream** stream, unsigned, int) {
  ENTER(ReadyInContext);
  *stream = new Stream;
  state.streams.insert(*stream);
  return 0;
}

Result cuStreamQuery(Stream* stream) {
  ENTER(ReadyInContext);
  return KnownStream(stream) ? 0 : Refuse(kInvalidHandle, call, "no such stream");
}

Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  ENTER(ReadyInContext);
  const bool known = KnownStream(stream) && state.events.count(event) != 0;
  return known ? 0 : Refuse(kInvalidHandle, call, "no such stream or event");
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

Result cuEventCreate(Event** event, unsigned) {
  ENTER(ReadyInContext);
  *event = new Event;
  state.events.insert(*event);
  return 0;
}

Result cuEventDestroy_v2(Event* event) {
  ENTER(ReadyInContext);
  if (state.events.erase(event) == 0) return Refuse(kInvalidHandle, call, "no such event");
  delete event;
  return 0;
}

Result cuEventRecord(Event* event, Stream* stream) {
  ENTER(ReadyInContext);
  if (state.events.count(event) == 0 || !KnownStream(stream)) {
    return Refuse(kInvalidHandle, call, "no such stream or event");
  }
  event->recorded = true;
  return 0;
}

Result cuEventQuery(Event* event) {
  ENTER(ReadyInContext);
  return state.events.count(event) != 0 ? 0 : Refuse(kInvalidHandle, call, "no such event");
}

Result cuEventSynchronize(Event* event) {
  ENTER(ReadyInContext);
  return state.events.count(event) != 0 ? 0 : Refuse(kInvalidHandle, call, "no such event");
}

Result cuEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  ENTER(ReadyInContext);
  for (Event* event : {from, to}) {
    if (state.events.count(event) == 0 || !event->recorded) {
      return Refuse(kInvalidHandle, call, "an event that was not recorded");
    }
  }
  *milliseconds = 0;
  return 0;
}

Result cuMemAlloc_v2(void** pointer, size_t bytes) {
  ENTER(ReadyInContext);
  if (bytes == 0) return Refuse(kInvalidValue, call, "0 bytes");
  const size_t rounded = (bytes + 255) / 256 * 256;
  *pointer = std::aligned_alloc(256, rounded);
  if (*pointer == nullptr) return 2;
  state.allocations[*pointer] = {current.back()->device, rounded};
  return 0;
}

Result cuMemFree_v2(void* pointer) {
  ENTER(ReadyInContext);
  if (pointer == nullptr) return 0;
  if (state.allocations.erase(pointer) == 0) return Refuse(kInvalidValue, call, "not allocated");
  std::free(pointer);
  return 0;
}

Result cuMemGetInfo_v2(size_t* unused, size_t* total) {
  ENTER(ReadyInContext);
  const int device = current.back()->device;
  *total = MemoryOf(device);
  const size_t taken = *total / 16 + static_cast<size_t>(HeldOn(device));
  *unused = *total - std::min(*total, taken);
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

Result cuMemcpyDtoD_v2(void* to, const void* from, size_t bytes) {
  ENTER(ReadyInContext);
  std::memcpy(to, from, bytes);
  return 0;
}

Result cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
  ENTER(ReadyInContext);
  if (!KnownStream(stream)) return Refuse(kInvalidHandle, call, "no such stream");
  std::memcpy(to, from, bytes);
  return 0;
}

Result cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
  ENTER(ReadyInContext);
  if (!KnownStream(stream)) return Refuse(kInvalidHandle, call, "no such stream");
  std::memcpy(to, from, bytes);
  return 0;
}

Result cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
  ENTER(ReadyInContext);
  if (!KnownStream(stream)) return Refuse(kInvalidHandle, call, "no such stream");
  std::memcpy(to, from, bytes);
  return 0;
}

Result cuMemsetD8_v2(void* at, unsigned char value, size_t bytes) {
  ENTER(ReadyInContext);
  std::memset(at, value, bytes);
  return 0;
}

Result cuMemsetD8Async(void* at, unsigned char value, size_t bytes, Stream* stream) {
  ENTER(ReadyInContext);
  if (!KnownStream(stream)) return Refuse(kInvalidHandle, call, "no such stream");
  std::memset(at, value, bytes);
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

// Memory of a device that its user has from elsewhere than cuMemAlloc: so many bytes of it by now.
void fakecuda_hold(int device, int64_t bytes) {
  const std::lock_guard<std::mutex> hold(state.lock);
  state.held[device] = bytes;
}

// How many contexts are on this thread's stack: an operation leaves as many as it found.
int64_t fakecuda_current_contexts() { return static_cast<int64_t>(current.size()); }

}  // extern "C"
#pragma GCC visibility pop
