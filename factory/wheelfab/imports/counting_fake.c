/* A driver that has no device and writes down who calls it.

   Built at run time into one library that stands in for libcuda.so.1 and libnvidia-ml.so.1 while a
   package is imported. Each entry point appends its name to the file in WHEELFAB_COUNT_LOG and
   answers "no device" (CUDA 100, NVML 9). The first one raises SIGUSR1, for which the importing
   process has asked faulthandler to write the Python stack. Arguments are never looked at, so every
   entry point can have the same empty parameter list (x86-64 and AArch64 pass them in registers).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int signalled;

static int note(const char* name, int answer) {
  const char* path = getenv("WHEELFAB_COUNT_LOG");
  if (path == NULL) return answer;
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) {
    char line[128];
    size_t size = strlen(name);
    if (size > sizeof line - 1) size = sizeof line - 1;
    memcpy(line, name, size);
    line[size] = '\n';
    if (write(file, line, size + 1) < 0) answer = 999;
    close(file);
  }
  if (!__atomic_exchange_n(&signalled, 1, __ATOMIC_SEQ_CST)) {
    struct sigaction now;
    /* without faulthandler's handler the signal would end the process */
    if (sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler != SIG_DFL) raise(SIGUSR1);
  }
  return answer;
}

#define CUDA(name) \
  int name() { return note(#name, 100); }
#define NVML(name) \
  int name() { return note(#name, 9); }

CUDA(cuInit)
CUDA(cuDeviceGetCount)
CUDA(cuDeviceGet)
CUDA(cuDeviceGetName)
CUDA(cuDeviceGetUuid)
CUDA(cuDeviceGetUuid_v2)
CUDA(cuDeviceGetAttribute)
CUDA(cuDeviceComputeCapability)
CUDA(cuDeviceTotalMem)
CUDA(cuDeviceTotalMem_v2)
CUDA(cuDeviceGetPCIBusId)
CUDA(cuDeviceGetByPCIBusId)
CUDA(cuDeviceCanAccessPeer)
CUDA(cuDevicePrimaryCtxRetain)
CUDA(cuDevicePrimaryCtxRelease)
CUDA(cuDevicePrimaryCtxRelease_v2)
CUDA(cuDevicePrimaryCtxGetState)
CUDA(cuDevicePrimaryCtxSetFlags)
CUDA(cuCtxCreate)
CUDA(cuCtxCreate_v2)
CUDA(cuCtxDestroy)
CUDA(cuCtxGetCurrent)
CUDA(cuCtxSetCurrent)
CUDA(cuCtxGetDevice)
CUDA(cuCtxPushCurrent)
CUDA(cuCtxPopCurrent)
CUDA(cuCtxSynchronize)
CUDA(cuMemAlloc)
CUDA(cuMemAlloc_v2)
CUDA(cuMemFree)
CUDA(cuMemFree_v2)
CUDA(cuMemGetInfo)
CUDA(cuMemGetInfo_v2)
CUDA(cuMemHostAlloc)
CUDA(cuMemcpyHtoD)
CUDA(cuMemcpyHtoD_v2)
CUDA(cuMemcpyDtoH)
CUDA(cuMemcpyDtoH_v2)
CUDA(cuModuleLoadData)
CUDA(cuModuleLoadDataEx)
CUDA(cuModuleGetFunction)
CUDA(cuLibraryLoadData)
CUDA(cuLaunchKernel)
CUDA(cuStreamCreate)
CUDA(cuStreamSynchronize)
CUDA(cuEventCreate)
CUDA(cuFuncSetAttribute)
CUDA(cuGetExportTable)
CUDA(cuPointerGetAttribute)

/* What cuGetProcAddress gives for an entry point that is not listed. */
int wheelfab_unlisted() { return note("cu*", 100); }

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return note("cuDriverGetVersion", 0);
}

static int get_proc_address(const char* symbol, void** function) {
  Dl_info self;
  *function = NULL;
  if (dladdr((void*)&note, &self) != 0) {
    void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) *function = dlsym(library, symbol);
  }
  if (*function == NULL) *function = (void*)&wheelfab_unlisted;
  return 0;
}

int cuGetProcAddress(const char* symbol, void** function) {
  note("cuGetProcAddress", 0);
  return get_proc_address(symbol, function);
}

int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long flags,
                        int* status) {
  (void)version;
  (void)flags;
  note("cuGetProcAddress", 0);
  if (status != NULL) *status = 0;
  return get_proc_address(symbol, function);
}

int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "no CUDA-capable device is detected";
  return 0;
}

int cuGetErrorName(int error, const char** text) {
  (void)error;
  *text = "CUDA_ERROR_NO_DEVICE";
  return 0;
}

NVML(nvmlInit)
NVML(nvmlInit_v2)
NVML(nvmlInitWithFlags)
NVML(nvmlShutdown)
NVML(nvmlDeviceGetCount)
NVML(nvmlDeviceGetCount_v2)
NVML(nvmlDeviceGetHandleByIndex)
NVML(nvmlDeviceGetHandleByIndex_v2)
NVML(nvmlDeviceGetHandleByUUID)
NVML(nvmlDeviceGetName)
NVML(nvmlDeviceGetUUID)
NVML(nvmlDeviceGetMemoryInfo)
NVML(nvmlDeviceGetMemoryInfo_v2)
NVML(nvmlDeviceGetCudaComputeCapability)
NVML(nvmlDeviceGetPciInfo_v3)
NVML(nvmlSystemGetDriverVersion)
NVML(nvmlSystemGetCudaDriverVersion)
NVML(nvmlSystemGetCudaDriverVersion_v2)
NVML(nvmlSystemGetNVMLVersion)

const char* nvmlErrorString(int error) {
  (void)error;
  return "Driver Not Loaded";
}
