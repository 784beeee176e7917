// Numbers that the kernels and their launches must agree on. Read by host and device compilers.
#pragma once

constexpr int kWarp = 32;
constexpr int kNormMaxThreads = 512;     // one block a token; fewer threads for small hidden sizes
constexpr int kActivationThreads = 256;  // grid: tokens x parts of the row
constexpr int kRotaryLanes = 32;         // threads along a head's pairs
constexpr int kRotaryHeads = 8;          // heads at a time
constexpr int kRotaryThreads = kRotaryLanes * kRotaryHeads;
constexpr int kCacheLanes = 16;  // threads along a head's elements
constexpr int kCacheHeads = 16;  // heads at a time
constexpr int kCacheThreads = kCacheLanes * kCacheHeads;
constexpr int kAttentionThreads = 128;  // one block a token, head and split
constexpr int kReduceThreads = 128;     // one block a token and head
constexpr int kVectorBytes = 16;        // one 128-bit load or store
