"""Stand-in of torch on NumPy: as much as the image's checks ask for; its library is linked as torch's own is."""

import ctypes
import math
import pathlib

import numpy

from . import version
from .version import __version__

_libraries = pathlib.Path(__file__).parent / "lib"
_cpu = ctypes.CDLL(str(_libraries / "libtorch_cpu.so"))
_library = None
if version.cuda:
    _library = ctypes.CDLL(str(_libraries / "libtorch_cuda.so"), mode=ctypes.RTLD_GLOBAL)
    assert _library.torch_touches() > 0
    _library.torch_magma.restype = ctypes.c_char_p

from . import distributed, nn  # noqa: E402

_VERSION = [int(part) for part in __version__.split(".")[:2]]
pi = math.pi
float32, float64, int32, uint8 = numpy.float32, numpy.float64, numpy.int32, numpy.uint8
complex64, complex128 = numpy.complex64, numpy.complex128


class Tensor:
    def __init__(self, array, back=None):
        self.array, self.back, self.grad, self.wants = numpy.asarray(array), back, None, False

    def __getitem__(self, index):
        return Tensor(self.array[index])

    def __setitem__(self, index, value):
        self.array[index] = value

    def __bool__(self):
        return bool(self.array)

    def __rpow__(self, base):
        return Tensor(base**self.array)

    def requires_grad_(self):
        self.wants = True
        return self

    def numpy(self):
        # What was compiled against NumPy 1, as releases before 2.3 are, does not load with NumPy 2.
        if _VERSION < [2, 3] and int(numpy.__version__.split(".")[0]) > 1:
            raise RuntimeError("Numpy is not available")
        return self.array

    def tolist(self):
        return self.array.tolist()

    def item(self):
        return self.array.item()

    def expand(self, *shape):
        return Tensor(numpy.broadcast_to(self.array, shape))

    def expand_as(self, other):
        return self.expand(*other.array.shape)

    def reshape(self, *shape):
        return Tensor(self.array.reshape(shape))

    def to(self, dtype):
        return Tensor(self.array.astype(dtype))

    @property
    def mH(self):  # noqa: N802
        return Tensor(self.array.conj().T)

    def clone(self):
        return Tensor(self.array.copy())

    def mean(self, dim):
        return Tensor(self.array.mean(axis=dim))

    def argmax(self):
        return Tensor(self.array.argmax())

    def sum(self):
        return Tensor(self.array.sum(), self.back)

    def backward(self):
        self.back()


def _operator(name):
    def apply(self, other):
        return Tensor(getattr(self.array, name)(other.array if isinstance(other, Tensor) else other))

    return apply


for _name in "add sub mul truediv floordiv matmul radd rsub rmul eq lt gt".split():
    setattr(Tensor, f"__{_name}__", _operator(f"__{_name}__"))
Tensor.__neg__ = lambda self: Tensor(-self.array)


def tensor(values, dtype=float32):
    return Tensor(numpy.array(values, dtype=dtype))


def arange(stop, dtype=None):
    return Tensor(numpy.arange(stop, dtype=dtype or (float32 if isinstance(stop, float) else None)))


def ones(*shape):
    return Tensor(numpy.ones(shape, dtype=float32))


def zeros(*shape):
    return Tensor(numpy.zeros(shape, dtype=float32))


def from_numpy(array):
    return Tensor(array)


def diag(value):
    return Tensor(numpy.diag(value.array))


def eye(size, dtype=float32):
    return Tensor(numpy.eye(size, dtype=dtype))


def sin(value):
    return Tensor(numpy.sin(value.array))


def all(value):  # noqa: A001
    return Tensor(value.array.all())


def inverse(value):
    if not _cpu.torch_has_lapack():
        raise RuntimeError("Calling torch.linalg.inv on a CPU tensor requires compiling PyTorch with LAPACK.")
    return Tensor(numpy.linalg.inv(value.array))


def equal(left, right):
    return left.array.shape == right.array.shape and bool((left.array == right.array).all())


def allclose(left, right, atol=1e-6):
    return bool(numpy.allclose(left.array, right.array, atol=atol))


def compiled_with_cxx11_abi():
    return True


def compile(function, backend="inductor"):  # noqa: A001
    """Has the real one's need: the default backend compiles C++."""
    import shutil

    if backend == "inductor" and not shutil.which("g++"):
        raise RuntimeError("no C++ compiler")
    import triton  # noqa: F401

    return function


from . import _C, __config__, _dynamo, autograd, backends, linalg, profiler  # noqa: E402
