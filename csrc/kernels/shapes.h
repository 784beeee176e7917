// Numbers that the kernels and their launches must agree on. Read by host and device compilers.
#pragma once

// An enumeration, since a device compiler would keep a constexpr variable in every image, under a
// name that nvcc derives from the folder.
enum FwShape : int {
  kWarp = 32,
  kVectorBytes = 16,         // one 128-bit load or store
  kNormMaxThreads = 512,     // one block a token; fewer threads for small hidden sizes
  kActivationThreads = 256,  // grid: tokens x parts of the row
  kRotaryLanes = 32,         // threads along a head's pairs
  kRotaryHeads = 8,          // heads at a time
  kRotaryThreads = kRotaryLanes * kRotaryHeads,
  kCacheLanes = 16,  // threads along a head's elements
  kCacheHeads = 16,  // heads at a time
  kCacheThreads = kCacheLanes * kCacheHeads,
  kAttentionThreads = 128,  // one block a token, head and split
  kReduceThreads = 128,     // one block a token and head
};
