// The part of Python's stable ABI (PEP 384, as of 3.10) that module.c uses.
//
// Python.h is not asked for: a machine with Python and a C++ compiler need not have it (Debian puts
// it into python3-dev), and without it the bytes of _C do not depend on the Python that built it.
// tests/integration/test_stable_abi.py compiles this file against Python.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef ptrdiff_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _is PyInterpreterState;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);

struct _object {
  Py_ssize_t ob_refcnt;
  void* ob_type;
};

typedef struct PyMethodDef {
  const char* ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char* ml_doc;
} PyMethodDef;

typedef struct PyModuleDef_Base {
  PyObject ob_base;
  PyObject* (*m_init)(void);
  Py_ssize_t m_index;
  PyObject* m_copy;
} PyModuleDef_Base;

typedef struct PyModuleDef_Slot {
  int slot;
  void* value;
} PyModuleDef_Slot;

typedef struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char* m_name;
  const char* m_doc;
  Py_ssize_t m_size;
  PyMethodDef* m_methods;
  PyModuleDef_Slot* m_slots;
  int (*m_traverse)(PyObject*, int (*)(PyObject*, void*), void*);
  int (*m_clear)(PyObject*);
  void (*m_free)(void*);
} PyModuleDef;

// clang-format off
#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}
// clang-format on
#define METH_NOARGS 0x0004

extern PyObject* PyExc_ImportError;
extern PyObject* PyExc_OSError;
extern PyObject* PyExc_RuntimeError;
extern PyObject* PyExc_ValueError;

PyObject* Py_BuildValue(const char*, ...);
void Py_DecRef(PyObject*);
const char* Py_GetVersion(void);
char* PyBytes_AsString(PyObject*);
void PyBytes_ConcatAndDel(PyObject**, PyObject*);
PyObject* PyBytes_FromString(const char*);
PyObject* PyBytes_FromStringAndSize(const char*, Py_ssize_t);
PyObject* PyErr_Format(PyObject*, const char*, ...);
PyObject* PyErr_NoMemory(void);
PyObject* PyErr_SetFromErrnoWithFilename(PyObject*, const char*);
void PyErr_SetString(PyObject*, const char*);
PyInterpreterState* PyInterpreterState_Get(void);
int64_t PyInterpreterState_GetID(PyInterpreterState*);
PyObject* PyModule_GetFilenameObject(PyObject*);
PyObject* PyModuleDef_Init(PyModuleDef*);
PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*);
PyObject* PyUnicode_EncodeFSDefault(PyObject*);
