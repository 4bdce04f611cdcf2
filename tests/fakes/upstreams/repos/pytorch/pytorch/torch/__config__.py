from . import _C


def show():
    return "CXX_FLAGS= -DUSE_KINETO" + " -DHAS_CUPTI" * _C._has_cuda
