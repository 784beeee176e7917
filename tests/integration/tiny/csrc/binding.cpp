// Compiles only beside a torch's headers, and says which torch they were.
#include <torch/csrc/api/include/torch/version.h>

extern "C" int tiny_torch_minor() { return TORCH_VERSION_MINOR; }
