"""torch.backends: a module for each, with what it says of itself."""

from . import _C


class _Backend:
    def __init__(self, there):
        self.is_available = self.is_built = self.is_flash_attention_available = lambda: there


cuda = _Backend(_C._has_cuda)
cudnn = _Backend(_C._has_cuda)
cusparselt = _Backend(_C._has_cusparselt)
mkl = _Backend(_C.has_lapack)
mkldnn = _Backend(_C._has_mkldnn)
openmp = nnpack = _Backend(True)


class quantized:  # noqa: N801
    supported_engines = ["qnnpack", *["onednn"] * _C._has_mkldnn, "x86", "fbgemm"]
