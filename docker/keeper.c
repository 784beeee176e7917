// What runs beside the loads in a container, static so that no polluted path or loader reaches it.
//
//   keeper                          process 1: reaps what is orphaned, ends at SIGTERM
//   keeper run SECONDS PROGRAM ...  runs PROGRAM in a session of its own and tells how it ended
//
// A Docker exec tells 139 both for exit(139) and for a SIGSEGV, and nothing kills it in time. `run`
// therefore ends its stderr with "\0keeper exit|signal|timeout|errno NUMBER NANOSECONDS\n". Past
// its time PROGRAM gets SIGABRT, which makes faulthandler speak, and a second later all of its
// descendants get SIGKILL; so do those that it leaves behind when it ends by itself.
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_NS = 1000000000, REAP_TRIES = 200, REAP_PAUSE_NS = 10000000 };

static long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int keep(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, NULL);
  while (sigwaitinfo(&set, NULL) != SIGTERM) {
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
  }
  return 0;
}

// Kills our children; their orphans become ours (we are a subreaper) and are met on the next turn.
static void kill_children(void) {
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;  // no /proc in this container: the group alone was killed
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[size > 0 ? size : 0] = '\0';
  char* rest = text;
  for (;;) {
    char* end;
    long pid = strtol(rest, &end, 10);
    if (end == rest) break;
    if (pid > 1) kill((pid_t)pid, SIGKILL);
    rest = end;
  }
}

// Ends what is left of the program's descendants; gives up on what cannot be reaped.
static void sweep(pid_t group) {
  for (int turn = 0; turn < REAP_TRIES; turn++) {
    kill(-group, SIGKILL);
    kill_children();
    pid_t reaped;
    while ((reaped = waitpid(-1, NULL, WNOHANG)) > 0) {
    }
    if (reaped < 0) return;
    struct timespec pause = {.tv_nsec = turn ? REAP_PAUSE_NS : REAP_PAUSE_NS / 20};
    nanosleep(&pause, NULL);
  }
}

// Waits until `deadline`; true when the program has ended, with its status.
static int ended(pid_t program, long long deadline, const sigset_t* set, int* status) {
  for (;;) {
    pid_t reaped;
    while ((reaped = waitpid(-1, status, WNOHANG)) > 0) {
      if (reaped == program) return 1;
    }
    long long left = deadline - now();
    if (left <= 0) return 0;
    struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    sigtimedwait(set, NULL, &wait);
  }
}

static int tell(const char* what, int number, long long started, int code) {
  char line[128];
  int size = snprintf(line + 1, sizeof line - 1, "keeper %s %d %lld\n", what, number,
                      now() - started);
  line[0] = '\0';
  return write(STDERR_FILENO, line, (size_t)size + 1) < 0 ? 125 : code;
}

// The child: a session of its own, the signals as they were; errno goes up the pipe.
static void become(char** argv, const sigset_t* mask, int report) {
  setsid();
  sigprocmask(SIG_SETMASK, mask, NULL);
  execvp(argv[0], argv);
  int code = errno;
  _exit(write(report, &code, sizeof code) < 0 ? 126 : 127);
}

static int run(double seconds, char** argv) {
  sigset_t set, mask;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, &mask);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  long long started = now();
  int report[2], failed = 0, status = 0;
  if (pipe2(report, O_CLOEXEC) != 0) return tell("errno", errno, started, 127);
  pid_t program = fork();
  if (program < 0) return tell("errno", errno, started, 127);
  if (program == 0) become(argv, &mask, report[1]);
  close(report[1]);
  if (read(report[0], &failed, sizeof failed) > 0) return tell("errno", failed, started, 127);
  int in_time = ended(program, started + (long long)(seconds * 1e9), &set, &status);
  if (!in_time) {
    kill(program, SIGABRT);
    ended(program, now() + GRACE_NS, &set, &status);
  }
  long long spent = now() - started;
  sweep(program);
  started = now() - spent;  // the sweep is none of the program's time
  if (!in_time) return tell("timeout", 0, started, 124);
  if (WIFSIGNALED(status)) return tell("signal", WTERMSIG(status), started, 125);
  return tell("exit", WEXITSTATUS(status), started, WEXITSTATUS(status));
}

int main(int argc, char** argv) {
  if (argc == 1) return keep();
  if (argc >= 4 && strcmp(argv[1], "run") == 0) return run(atof(argv[2]), argv + 3);
  fputs("keeper | keeper run SECONDS PROGRAM [ARGUMENT ...]\n", stderr);
  return 2;
}
