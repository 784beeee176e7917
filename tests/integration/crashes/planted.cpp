// Ways to die, a function each; with CONSTRUCTOR the library dies as it is loaded.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

extern "C" {

void null_pointer() {
  int* volatile nowhere = nullptr;
  *nowhere = 1;
}

void non_canonical() {
  int* volatile nowhere = reinterpret_cast<int*>(UINT64_C(0xdead0000beef0000));
  *nowhere = 1;
}

void read_only() {
  static const char kText[] = "text";
  *const_cast<char*>(static_cast<const char* volatile>(kText)) = 'T';
}

void aborts() { std::abort(); }

void undefined_instruction() { asm volatile("ud2"); }

void truncated_mapping() {
  FILE* file = std::tmpfile();
  if (ftruncate(fileno(file), 8192) != 0) return;
  void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  if (ftruncate(fileno(file), 0) != 0) return;
  static_cast<volatile char*>(mapped)[4096] = 1;
}

void leaves() { std::exit(7); }

void hangs() {
  while (true) pause();
}

void throws() { throw 1; }

void forks() {
  if (fork() == 0) null_pointer();
  wait(nullptr);
}

void asks_devices() {
  open("/dev/nvidiactl", O_RDWR);
  std::abort();
}

}  // extern "C"

#ifdef CONSTRUCTOR
namespace {

int* Start() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return nullptr;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  static int result = init(0) + 1;  // used after the call, which is no tail call then
  return &result;
}

__attribute__((constructor)) void start_the_driver() {
  if (Start() != nullptr) std::puts("started");
}

}  // namespace
#endif
