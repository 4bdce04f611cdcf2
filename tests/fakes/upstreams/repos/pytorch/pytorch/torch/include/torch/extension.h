#pragma once
#include <Python.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 14 && __cplusplus < 202002L
#error C++20 or later compatible compiler is required to use PyTorch.
#endif

// As much of pybind11 as extensions of the tests use. The real one, which torch has in this header, compiles for seconds.
struct standin_module {
  PyObject *object;
  static PyObject *call(PyObject *function, PyObject *) {
    return PyLong_FromLong(reinterpret_cast<int (*)()>(PyLong_AsVoidPtr(function))());
  }
  void def(const char *name, int (*function)()) {
    PyMethodDef *method = new PyMethodDef{name, call, METH_NOARGS, nullptr};
    PyModule_AddObject(object, name, PyCFunction_New(method, PyLong_FromVoidPtr(reinterpret_cast<void *>(function))));
  }
};
#define STANDIN_MODULE(NAME, VARIABLE)                                                            \
  static void standin_fill(standin_module &);                                                     \
  static PyModuleDef standin_definition = {PyModuleDef_HEAD_INIT, #NAME, nullptr, -1, nullptr};   \
  PyMODINIT_FUNC PyInit_##NAME() {                                                                \
    standin_module module{PyModule_Create(&standin_definition)};                                  \
    standin_fill(module);                                                                         \
    return module.object;                                                                         \
  }                                                                                               \
  static void standin_fill(standin_module &VARIABLE)
#define PYBIND11_MODULE(NAME, VARIABLE) STANDIN_MODULE(NAME, VARIABLE)
