// As the libcuda.so that toolkits bring for linking: every entry point says that it is a stub.
#include "../include/entry_points.h"

#pragma GCC visibility push(default)
extern "C" {

#define STUB(name) \
  int name() { return 34; }  // CUDA_ERROR_STUB_LIBRARY
WHEELFAB_ANSWERED(STUB)
WHEELFAB_REFUSED(STUB)

}  // extern "C"
#pragma GCC visibility pop
