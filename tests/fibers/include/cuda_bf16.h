// Stands in for CUDA's header of this name.
#pragma once

#include <stdint.h>
#include <string.h>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  const uint32_t wide = uint32_t{x.bits} << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

// To nearest, ties to even; every NaN becomes 0x7fff, as on the device.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
