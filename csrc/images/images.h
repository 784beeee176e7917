// The device images that the link puts into _kernels: one fatbin container for each .cu file, in
// the section .nv_fatbin. The build generates the file that defines the two symbols.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FwImage {
  const char* name;            // stem of the .cu file, as FwLaunch.image names it
  const unsigned char* begin;  // 8-aligned
  const unsigned char* end;
} FwImage;

extern __attribute__((visibility("hidden"))) const FwImage fw_images[];
extern __attribute__((visibility("hidden"))) const int32_t fw_image_count;  // 0 in a CPU variant

#ifdef __cplusplus
}
#endif
