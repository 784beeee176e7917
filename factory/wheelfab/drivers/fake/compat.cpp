// What the static parts of newer gcc and glibc ask of libc: hidden definitions of our own leave no
// reference to it, so that the library loads on glibc 2.28 too.
#include <pthread.h>

#if defined(__linux__) && defined(__x86_64__)
extern "C" {

// glibc 2.32: whether atomics may be skipped; never.
char __libc_single_threaded = 0;

// glibc 2.35: the unwinder's short way; it then takes the long one.
int _dl_find_object(void*, void*) { return -1; }

// They moved from libpthread to libc in glibc 2.34.
__asm__(".symver old_pthread_once,pthread_once@GLIBC_2.2.5");
__asm__(".symver old_pthread_key_create,pthread_key_create@GLIBC_2.2.5");
int old_pthread_once(pthread_once_t*, void (*)());
int old_pthread_key_create(pthread_key_t*, void (*)(void*));

int pthread_once(pthread_once_t* once, void (*start)()) { return old_pthread_once(once, start); }

int __pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return old_pthread_key_create(key, destroy);
}

}  // extern "C"
#endif
