#include <Python.h>
#define CONCATENATED(a, b) a##b
#define INIT(name) CONCATENATED(PyInit_, name)
#define QUOTED(name) #name
#define TEXT(name) QUOTED(name)
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, TEXT(NAME), 0, -1, 0};
PyMODINIT_FUNC INIT(NAME)(void) { return PyModule_Create(&module); }
