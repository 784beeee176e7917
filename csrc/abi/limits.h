// What the operations take: the only place where these numbers stand. For C, C++ and _C.
#pragma once

// Each dtype's name, in the order of FwDtype.
#define FW_DTYPES(X) X("float32") X("float16") X("bfloat16")
// Head sizes of the cache and of attention.
#define FW_HEAD_SIZES(X) X(64) X(80) X(96) X(128) X(256)
// Tokens of a cache block, and the logarithm to base 2.
#define FW_BLOCK_SIZES(X) X(8, 3) X(16, 4) X(32, 5)
