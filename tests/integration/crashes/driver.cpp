// A driver library whose cuInit dies three functions deep, as a real one does.
namespace {

__attribute__((noinline)) int Touch(volatile int* where) { return *where + 1; }

__attribute__((noinline)) int Prepare(volatile int* where) { return Touch(where) + 1; }

}  // namespace

extern "C" int cuInit(unsigned) {
  volatile int* const kNowhere = nullptr;
  return Prepare(kNowhere) + 1;
}
