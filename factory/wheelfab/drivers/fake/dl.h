// Include this where dlopen or its kin are called: they moved from libdl to libc in glibc 2.34.
// Their oldest versions, together with libdl.so.2 among the needed libraries, load on older ones.
#pragma once

#include <dlfcn.h>

#if defined(__linux__) && defined(__x86_64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
#endif
