// A clock that is years ahead, for every program that is linked dynamically: preloaded, it answers
// for the C library. The monotonic clock, and with it every wait, stays as it is.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { AHEAD = 5 * 365 * 24 * 3600 };  // seconds

int clock_gettime(clockid_t clock, struct timespec* now) {
  long failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += AHEAD;
  return (int)failed;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  long failed = syscall(SYS_gettimeofday, now, zone);
  if (!failed && now) now->tv_sec += AHEAD;
  return (int)failed;
}

int timespec_get(struct timespec* now, int base) {
  return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
