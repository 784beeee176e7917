// The program freewheel/_probe: asks the NVIDIA driver in a process of its own, because a broken
// driver kills or stops whoever asks it.
//
//   _probe [DESCRIPTOR] [--deep]
//
// On DESCRIPTOR (3 unless given) it writes "step NAME" before each step, so that a death is known
// by its place, and at the end one JSON object in one line. It creates no context, unless --deep.
// It always exits with 0 once it has answered, without running anyone's exit handlers.
#define _GNU_SOURCE  // dladdr
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compat/dl.h"

enum {
  kMaxDevices = 64,
  // CUdevice_attribute of cuda.h.
  kComputeMode = 20,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kInsufficientSize = 7,  // NVML_ERROR_INSUFFICIENT_SIZE
};

typedef int (*Call)();

static int descriptor = 3;
static char answer[1 << 16];
static size_t length;

static void Write(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t written = write(descriptor, text, size);
    if (written <= 0) _exit(1);
    text += written;
    size -= (size_t)written;
  }
}

static void Step(const char* name) {
  char line[64];
  const int size = snprintf(line, sizeof line, "step %s\n", name);
  Write(line, (size_t)size);
}

__attribute__((format(printf, 1, 2))) static void Add(const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int size = vsnprintf(answer + length, sizeof answer - length, format, values);
  va_end(values);
  if (size < 0 || (size_t)size >= sizeof answer - length) _exit(1);
  length += (size_t)size;
}

static void AddText(const char* key, const char* text) {
  Add("\"%s\": ", key);
  if (text == NULL) {
    Add("null");
    return;
  }
  Add("\"");
  for (const char* at = text; *at != '\0' && at - text < 1024; ++at) {
    const unsigned char byte = (unsigned char)*at;
    if (byte == '"' || byte == '\\') {
      Add("\\%c", byte);
    } else if (byte < 0x20 || byte >= 0x7f) {
      Add("\\u%04x", byte);
    } else {
      Add("%c", byte);
    }
  }
  Add("\"");
}

static int Answer(void) {
  Add("}\n");
  Write(answer, length);
  _exit(0);
}

static Call Find(void* library, const char* name) {
  Call call = NULL;
  *(void**)&call = dlsym(library, name);
  return call;
}

// The name and text that the driver itself gives to a result.
static void AddResult(void* cuda, const char* key, int result) {
  const char* name = NULL;
  const char* text = NULL;
  Call get_name = Find(cuda, "cuGetErrorName");
  Call get_text = Find(cuda, "cuGetErrorString");
  if (result != 0 && get_name != NULL && get_name(result, &name) != 0) name = NULL;
  if (result != 0 && get_text != NULL && get_text(result, &text) != 0) text = NULL;
  Add(", \"%s\": {\"code\": %d, ", key, result);
  AddText("name", name);
  Add(", ");
  AddText("text", text);
  Add("}");
}

static void AddNumber(const char* key, int known, long long value) {
  if (known) {
    Add(", \"%s\": %lld", key, value);
  } else {
    Add(", \"%s\": null", key);
  }
}

static int Attribute(void* cuda, int attribute, int device, int* value) {
  Call get = Find(cuda, "cuDeviceGetAttribute");
  return get != NULL && get(value, attribute, device) == 0;
}

// What NVML knows of the device with this UUID; the numbers it does not give are null.
static void AddManaged(void* nvml, void* cuda, int device, const char* digits) {
  void* handle = NULL;
  struct {
    unsigned long long total, unused, used;
  } memory = {0, 0, 0};
  int has_memory = 0, has_mode = 0, has_processes = 0, mig = 0, mode = 0;
  unsigned processes = 0;
  char uuid[64];
  Call by_uuid = nvml == NULL ? NULL : Find(nvml, "nvmlDeviceGetHandleByUUID");
  if (by_uuid != NULL && digits != NULL) {
    snprintf(uuid, sizeof uuid, "GPU-%s", digits);
    if (by_uuid(uuid, &handle) != 0) {
      snprintf(uuid, sizeof uuid, "MIG-%s", digits);
      mig = by_uuid(uuid, &handle) == 0;
      if (!mig) handle = NULL;
    }
  }
  if (handle != NULL) {
    Call get_memory = Find(nvml, "nvmlDeviceGetMemoryInfo");
    Call get_mode = Find(nvml, "nvmlDeviceGetComputeMode");
    Call get_processes = Find(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    has_memory = get_memory != NULL && get_memory(handle, &memory) == 0;
    has_mode = get_mode != NULL && get_mode(handle, &mode) == 0;
    if (get_processes != NULL) {
      // With room for none it says how many there are.
      const int result = get_processes(handle, &processes, NULL);
      has_processes = result == 0 || result == kInsufficientSize;
    }
  }
  if (!has_mode) has_mode = Attribute(cuda, kComputeMode, device, &mode);
  AddNumber("free_memory", has_memory, (long long)memory.unused);
  AddNumber("compute_mode", has_mode, mode);
  AddNumber("processes", has_processes, processes);
  Add(", \"mig\": %s", mig ? "true" : "false");
}

static void AddContext(void* cuda, int device) {
  void* context = NULL;
  size_t unused = 0, total = 0;
  Call retain = Find(cuda, "cuDevicePrimaryCtxRetain");
  Call push = Find(cuda, "cuCtxPushCurrent_v2");
  Call pop = Find(cuda, "cuCtxPopCurrent_v2");
  Call get_memory = Find(cuda, "cuMemGetInfo_v2");
  if (retain == NULL || push == NULL || pop == NULL || get_memory == NULL) return;
  int result = retain(&context, device);
  if (result == 0) result = push(context);
  if (result == 0) {
    result = get_memory(&unused, &total);
    pop(&context);
  }
  AddResult(cuda, "context", result);
  if (result == 0) AddNumber("free_in_context", 1, (long long)unused);
}

static void AddDevice(void* cuda, void* nvml, int ordinal, int deep) {
  int device = 0, major = 0, minor = 0;
  char name[256] = "";
  unsigned char bytes[16];
  char digits[40];
  size_t total = 0;
  Call get = Find(cuda, "cuDeviceGet");
  Call get_name = Find(cuda, "cuDeviceGetName");
  Call get_memory = Find(cuda, "cuDeviceTotalMem_v2");
  Call get_uuid = Find(cuda, "cuDeviceGetUuid_v2");
  if (get_uuid == NULL) get_uuid = Find(cuda, "cuDeviceGetUuid");
  Add("%s{\"ordinal\": %d", ordinal == 0 ? "" : ", ", ordinal);
  const int result = get == NULL ? 500 : get(&device, ordinal);
  AddResult(cuda, "get", result);
  if (result == 0) {
    const int has_name = get_name != NULL && get_name(name, (int)sizeof name, device) == 0;
    Add(", ");
    AddText("name", has_name ? name : NULL);
    const int has_capability = Attribute(cuda, kCapabilityMajor, device, &major) &&
                               Attribute(cuda, kCapabilityMinor, device, &minor);
    AddNumber("major", has_capability, major);
    AddNumber("minor", has_capability, minor);
    const int has_memory = get_memory != NULL && get_memory(&total, device) == 0;
    AddNumber("total_memory", has_memory, (long long)total);
    const int has_uuid = get_uuid != NULL && get_uuid(bytes, device) == 0;
    for (int i = 0, at = 0; has_uuid && i < 16; ++i) {
      const char* dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
      at += snprintf(digits + at, sizeof digits - (size_t)at, "%s%02x", dash, bytes[i]);
    }
    Add(", ");
    AddText("uuid", has_uuid ? digits : NULL);
    AddManaged(nvml, cuda, device, has_uuid ? digits : NULL);
    if (deep) AddContext(cuda, device);
  }
  Add("}");
}

static void* OpenNvml(void) {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Call start = nvml == NULL ? NULL : Find(nvml, "nvmlInit_v2");
  return start != NULL && start() == 0 ? nvml : NULL;
}

static void AddDevices(void* cuda, Call get_count, int deep) {
  int count = 0;
  Step("cuDeviceGetCount");
  const int result = get_count(&count);
  AddResult(cuda, "counted", result);
  if (result != 0) return;
  Step("nvmlInit");
  void* nvml = count > 0 ? OpenNvml() : NULL;
  Step(deep ? "contexts" : "devices");
  AddNumber("count", 1, count);
  Add(", \"devices\": [");
  for (int i = 0; i < count && i < kMaxDevices; ++i) AddDevice(cuda, nvml, i, deep);
  Add("]");
}

// Neither a core file nor a hanging process is left behind.
static void LeaveNothing(void) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_PDEATHSIG, 9);
}

static int Ask(int deep) {
  LeaveNothing();
  Step("start");
  Add("{\"schema\": 1, \"deep\": %s", deep ? "true" : "false");
  Step("dlopen");
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cuda == NULL) {
    Add(", ");
    AddText("not_loaded", dlerror());
    return Answer();
  }
  Call start = Find(cuda, "cuInit");
  Call get_version = Find(cuda, "cuDriverGetVersion");
  Call get_count = Find(cuda, "cuDeviceGetCount");
  Dl_info where = {NULL, NULL, NULL, NULL};
  void* any = dlsym(cuda, start != NULL ? "cuInit" : "cuDriverGetVersion");
  Add(", ");
  AddText("library", any != NULL && dladdr(any, &where) != 0 ? where.dli_fname : NULL);
  if (start == NULL || get_version == NULL || get_count == NULL) {
    Add(", ");
    AddText("missing", start == NULL         ? "cuInit"
                       : get_version == NULL ? "cuDriverGetVersion"
                                             : "cuDeviceGetCount");
    return Answer();
  }
  int version = 0;
  Step("cuDriverGetVersion");
  const int versioned = get_version(&version);
  AddResult(cuda, "versioned", versioned);
  AddNumber("driver_version", versioned == 0 && version > 0, version);
  Step("cuInit");
  const int initialised = start(0);
  AddResult(cuda, "initialised", initialised);
  if (initialised == 0) AddDevices(cuda, get_count, deep);
  return Answer();
}

int main(int count, char** arguments) {
  int deep = 0;
  for (int i = 1; i < count; ++i) {
    if (strcmp(arguments[i], "--deep") == 0) {
      deep = 1;
    } else {
      descriptor = atoi(arguments[i]);
    }
  }
  return Ask(deep);
}

#if defined(__linux__) && defined(__x86_64__)
// The start files of a new glibc ask for its own __libc_start_main (2.34); the oldest one is in
// all.
__asm__(
    ".symver __libc_start_main,__libc_start_main@GLIBC_2.2.5\n"
    ".text\n.globl _start\n.type _start,@function\n_start:\n"
    "  xorl %ebp, %ebp\n"
    "  movq %rdx, %r9\n"
    "  popq %rsi\n"
    "  movq %rsp, %rdx\n"
    "  andq $-16, %rsp\n"
    "  pushq %rax\n"
    "  pushq %rsp\n"
    "  xorl %r8d, %r8d\n"
    "  xorl %ecx, %ecx\n"
    "  leaq main(%rip), %rdi\n"
    "  call *__libc_start_main@GOTPCREL(%rip)\n"
    "  hlt\n");
#endif
