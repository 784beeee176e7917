// freewheel._C: what this build is, without torch and without touching a driver. Limited API of
// Python 3.10, multi-phase initialisation, no state, so that every interpreter may have its own.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/limits.h"
#include "abi/table.h"
#include "compat/dl.h"
#include "module/stable_abi.h"

enum { kMaxRecordBytes = 1 << 20, kMaxIsaError = 512 };

// The path of a file beside this module, as a bytes object; null with an exception set.
static PyObject* Beside(PyObject* module, const char* name) {
  PyObject* file = PyModule_GetFilenameObject(module);
  if (file == NULL) return NULL;
  PyObject* encoded = PyUnicode_EncodeFSDefault(file);
  Py_DecRef(file);
  if (encoded == NULL) return NULL;
  const char* path = PyBytes_AsString(encoded);
  const char* slash = path == NULL ? NULL : strrchr(path, '/');
  PyObject* result = NULL;
  if (path != NULL) {
    result = PyBytes_FromStringAndSize(path, slash == NULL ? 0 : slash - path + 1);
    PyBytes_ConcatAndDel(&result, PyBytes_FromString(name));
  }
  Py_DecRef(encoded);
  return result;
}

// The whole text of an open file, at most kMaxRecordBytes.
static PyObject* ReadText(FILE* file, PyObject* path) {
  char* buffer = malloc(kMaxRecordBytes);
  if (buffer == NULL) return PyErr_NoMemory();
  const size_t size = fread(buffer, 1, kMaxRecordBytes, file);
  PyObject* text = NULL;
  if (ferror(file)) {
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
  } else if (size == kMaxRecordBytes) {
    PyErr_Format(PyExc_ValueError, "%s is larger than 1 MiB", PyBytes_AsString(path));
  } else {
    text = PyUnicode_DecodeUTF8(buffer, (Py_ssize_t)size, "strict");
  }
  free(buffer);
  return text;
}

static const char build_record_doc[] =
    "build_record($module, /)\n--\n\n"
    "The text of _build.json beside this module. OSError when it cannot be read.";

static PyObject* BuildRecord(PyObject* module, PyObject* unused) {
  (void)unused;
  PyObject* path = Beside(module, "_build.json");
  if (path == NULL) return NULL;
  PyObject* text = NULL;
  FILE* file = fopen(PyBytes_AsString(path), "rb");
  if (file == NULL) {
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
  } else {
    text = ReadText(file, path);
    fclose(file);
  }
  Py_DecRef(path);
  return text;
}

// The table of the library at path; null with ImportError set.
static const FwKernels* OpenKernels(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // stays open: _native keeps the same one
  if (library == NULL) {
    const char* reason = dlerror();
    PyErr_SetString(PyExc_ImportError, reason == NULL ? path : reason);
    return NULL;
  }
  const FwKernels* (*table)(void) = NULL;
  *(void**)&table = dlsym(library, "freewheel_kernels");
  if (table == NULL) {
    PyErr_Format(PyExc_ImportError, "%s does not export freewheel_kernels", path);
    return NULL;
  }
  return table();
}

// The table of _kernels.so beside the module; null with ImportError set.
static const FwKernels* KernelsBeside(PyObject* module) {
  PyObject* path = Beside(module, "_kernels.so");
  if (path == NULL) return NULL;
  const FwKernels* table = OpenKernels(PyBytes_AsString(path));
  Py_DecRef(path);
  if (table == NULL || (table->interface_version == FW_INTERFACE_VERSION &&
                        table->size == (int64_t)sizeof(FwKernels))) {
    return table;
  }
  PyErr_Format(PyExc_ImportError,
               "_kernels.so has interface version %lld, _C has %d: they come from different builds",
               (long long)table->interface_version, FW_INTERFACE_VERSION);
  return NULL;
}

static PyObject* DescribeKernels(const FwKernels* table) {
  char error[kMaxIsaError] = "";
  const FwExec exec = {.device = -1, .error = error, .error_size = sizeof(error)};
  const char* isa = table->cpu_isa(&exec);
  if (isa == NULL) {
    PyErr_SetString(PyExc_RuntimeError, error);
    return NULL;
  }
  return Py_BuildValue("{s:i,s:s,s:s}", "interface_version", FW_INTERFACE_VERSION, "archs",
                       table->archs(), "cpu_isa", isa);
}

static const char kernels_doc[] =
    "kernels($module, /)\n--\n\n"
    "Facts of _kernels.so beside this module: interface_version, archs, cpu_isa.\n"
    "ImportError when it cannot be loaded, RuntimeError when FREEWHEEL_ISA is wrong.";

static PyObject* Kernels(PyObject* module, PyObject* unused) {
  (void)unused;
  const FwKernels* table = KernelsBeside(module);
  return table == NULL ? NULL : DescribeKernels(table);
}

static const char instruction_sets_doc[] =
    "instruction_sets($module, /)\n--\n\n"
    "CPU instruction sets of _kernels.so, least first: built, and usable on this machine.\n"
    "ImportError when it cannot be loaded.";

static PyObject* InstructionSets(PyObject* module, PyObject* unused) {
  (void)unused;
  const FwKernels* table = KernelsBeside(module);
  if (table == NULL) return NULL;
  return Py_BuildValue("{s:s,s:s}", "built", table->cpu_isas(0), "usable", table->cpu_isas(1));
}

static const char driver_process_doc[] =
    "driver_process($module, /)\n--\n\n"
    "The process in which _kernels.so opened the driver, 0 if it has not: a child that was forked\n"
    "afterwards gets its parent's. ImportError when it cannot be loaded.";

static PyObject* DriverProcess(PyObject* module, PyObject* unused) {
  (void)unused;
  const FwKernels* table = KernelsBeside(module);
  return table == NULL ? NULL : Py_BuildValue("i", (int)table->driver_process());
}

static const char limits_doc[] =
    "limits($module, /)\n--\n\n"
    "What the operations take: dtypes, head_sizes, block_sizes.";

static PyObject* Limits(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  // clang-format off
#define FW_TEXT(value) "s"
#define FW_NUMBER(...) "i"
#define FW_VALUE(value, ...) , value
  return Py_BuildValue("{s:(" FW_DTYPES(FW_TEXT) "),s:(" FW_HEAD_SIZES(FW_NUMBER) "),"
                       "s:(" FW_BLOCK_SIZES(FW_NUMBER) ")}",
                       "dtypes" FW_DTYPES(FW_VALUE), "head_sizes" FW_HEAD_SIZES(FW_VALUE),
                       "block_sizes" FW_BLOCK_SIZES(FW_VALUE));
  // clang-format on
}

static const char interpreter_doc[] =
    "interpreter($module, /)\n--\n\n"
    "The number of the running interpreter: 0 is the main one.";

static PyObject* Interpreter(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return Py_BuildValue("L", (long long)PyInterpreterState_GetID(PyInterpreterState_Get()));
}

static const char version_doc[] =
    "version($module, /)\n--\n\n"
    "Facts of this module: interface_version, limited_api, compiler.";

static PyObject* Version(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return Py_BuildValue("{s:i,s:s,s:s}", "interface_version", FW_INTERFACE_VERSION, "limited_api",
                       "3.10", "compiler", "gcc " __VERSION__);
}

static PyMethodDef methods[] = {
    {"build_record", BuildRecord, METH_NOARGS, build_record_doc},
    {"driver_process", DriverProcess, METH_NOARGS, driver_process_doc},
    {"instruction_sets", InstructionSets, METH_NOARGS, instruction_sets_doc},
    {"interpreter", Interpreter, METH_NOARGS, interpreter_doc},
    {"kernels", Kernels, METH_NOARGS, kernels_doc},
    {"limits", Limits, METH_NOARGS, limits_doc},
    {"version", Version, METH_NOARGS, version_doc},
    {NULL, NULL, 0, NULL},
};

// Slot numbers that the limited API of 3.10 does not know; older Pythons refuse them.
enum { kMultipleInterpreters = 3, kGil = 4 };
static PyModuleDef_Slot slots[] = {{0, NULL}, {0, NULL}, {0, NULL}};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "freewheel._C",
    .m_doc = "What this build of freewheel is. Imports no torch and touches no driver.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

// The minor version of the running Python 3.
static long PythonMinor(void) {
  const char* dot = strchr(Py_GetVersion(), '.');
  return dot == NULL ? 0 : strtol(dot + 1, NULL, 10);
}

__attribute__((visibility("default"))) PyObject* PyInit__C(void) {
  const long minor = PythonMinor();
  if (minor >= 12) {
    slots[0].slot = kMultipleInterpreters;
    slots[0].value = (void*)2;  // one GIL for each interpreter is fine
  }
  if (minor >= 13) {
    slots[1].slot = kGil;
    slots[1].value = (void*)1;  // no GIL needed
  }
  return PyModuleDef_Init(&definition);
}
