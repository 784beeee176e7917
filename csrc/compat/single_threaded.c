// libstdc++ of gcc 11 and later asks glibc 2.32's __libc_single_threaded whether shared_ptr may
// skip atomics. A definition of our own, hidden, answers "no" and leaves no reference to glibc.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
