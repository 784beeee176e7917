// What newer libstdc++ exports and GLIBCXX_3.4.24 (glibc 2.28's time) does not: our own copies,
// which the linker keeps inside the library, leave no reference to the newer versions.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>

#if _GLIBCXX_USE_CXX11_ABI  // these exist in the new ABI alone; GLIBCXX_3.4.26
template std::basic_stringstream<char>::basic_stringstream();
template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
#endif

#if _GLIBCXX_RELEASE >= 11  // GLIBCXX_3.4.29; allocators call it when a size overflows
void std::__throw_bad_array_new_length() { throw std::bad_array_new_length(); }
#endif

#if defined(_GLIBCXX_ASSERTIONS) && _GLIBCXX_RELEASE >= 12  // GLIBCXX_3.4.30; the debug twin's
void std::__glibcxx_assert_fail(const char* file, int line, const char* function,
                                const char* condition) noexcept {
  std::fprintf(stderr, "%s:%d: %s: Assertion '%s' failed.\n", file, line, function, condition);
  std::abort();
}
#endif
