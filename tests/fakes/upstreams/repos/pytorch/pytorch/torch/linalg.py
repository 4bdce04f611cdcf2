"""Needs LAPACK, as the real one's functions on the CPU."""

import numpy

from . import _C, Tensor


def _of_numpy(name):
    def apply(*values):
        if not _C.has_lapack:
            raise RuntimeError(f"Calling torch.linalg.{name} on a CPU tensor requires compiling PyTorch with LAPACK.")
        result = getattr(numpy.linalg, name)(*(value.array for value in values))
        return tuple(map(Tensor, result)) if isinstance(result, tuple) else Tensor(result)

    return apply


for _name in "cholesky eigh inv qr solve svd".split():
    globals()[_name] = _of_numpy(_name)
