// Stands in for CUDA's header of this name.
#pragma once

#include <stdint.h>
#include <string.h>

struct __half {
  uint16_t bits;
};

// Moves exponent and mantissa into a float's places and corrects the bias by a product, which also
// normalises subnormal numbers.
inline float __half2float(__half x) {
  uint32_t bits = uint32_t{x.bits & 0x7fffu} << 13;
  float value;
  memcpy(&value, &bits, sizeof value);
  value *= 0x1p112f;
  memcpy(&bits, &value, sizeof bits);
  if ((x.bits & 0x7c00u) == 0x7c00u) bits |= 0x7f800000u;
  bits |= uint32_t{x.bits & 0x8000u} << 16;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// To nearest, ties to even; every NaN becomes 0x7fff, as on the device.
inline __half __float2half_rn(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return {0x7fff};
  if (bits >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // from 65520: infinity
  if (bits < 0x38800000u) {  // below 2^-14: let a float whose last place is 2^-24 do the rounding
    float value;
    memcpy(&value, &bits, sizeof value);
    value += 0.5f;
    memcpy(&bits, &value, sizeof bits);
    return {static_cast<uint16_t>(sign | (bits - 0x3f000000u))};
  }
  bits += 0xfffu + ((bits >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((bits - 0x38000000u) >> 13))};
}
