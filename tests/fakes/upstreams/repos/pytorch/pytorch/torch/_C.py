"""What torch was built with, as its libraries say."""

import pathlib

from . import _cpu, _library, version

_has_cuda = bool(version.cuda)
_has_magma = bool(_library and _library.torch_magma())
_has_cusparselt = bool(_library and _library.torch_has_cusparselt())
_has_gds = _has_cuda
_has_nvshmem = (pathlib.Path(__file__).parent / "lib/libtorch_nvshmem.so").exists()
has_lapack = bool(_cpu.torch_has_lapack())
has_spectral = True
_has_mkldnn = bool(_cpu.torch_has_mkldnn())


def _dispatch_has_kernel_for_dispatch_key(operator, key):
    return _has_cuda and (_has_cusparselt or "_cslt_" not in operator)
