#!/usr/bin/env python3
"""torch has what the published wheel of its release has: the features in FEATURES; empty: no such wheel was read.

`slipway:cmake` switches on a feature with a `+` before it, which no such wheel has.
It switches off one with a `-`: torch must not have it.
With `--list` it prints those of this torch, so the table that FEATURES comes from, stacks/versions/torch_features.toml,
is read out of wheels. Nothing here needs a GPU. Kernels that a build has by its architectures are no features.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def backend(name: str) -> object:
    """Whether torch.backends names it as there."""
    return getattr(torch.backends, name).is_available()


def kernel(operator: str) -> object:
    """Whether an operator has code for CUDA."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA")


def setting(text: str) -> bool:
    """Whether torch says so of how it was built."""
    return text in torch.__config__.show()


def distributed(name: str) -> object:
    """Whether a backend of torch.distributed is there."""
    return getattr(torch.distributed, "is_" + name + "_available")()


def linalg() -> bool:
    """Whether decompositions and solvers on the CPU put a matrix together again, in each type that LAPACK has."""
    for dtype in TYPES:
        matrix = torch.tensor([[4, 1], [1, 3]], dtype=dtype)
        left, values, right = torch.linalg.svd(matrix)
        lower, (q, r), (squares, vectors) = (
            torch.linalg.cholesky(matrix),
            torch.linalg.qr(matrix),
            torch.linalg.eigh(matrix),
        )
        parts = [
            left @ torch.diag(values).to(dtype) @ right,
            lower @ lower.mH,
            q @ r,
            vectors @ torch.diag(squares).to(dtype) @ vectors.mH,
            torch.linalg.inv(torch.linalg.inv(matrix)),
            torch.linalg.solve(torch.linalg.inv(matrix), torch.eye(2, dtype=dtype)),
        ]
        if not all(torch.allclose(part, matrix, atol=1e-4) for part in parts):
            return False
    return True


def symmetric_memory() -> object:
    """Whether symmetric memory can be NVSHMEM's."""
    return importlib.import_module("torch.distributed._symmetric_memory").is_nvshmem_available()


# ruff: noqa: PLW0108, SLF001  # a release may lack what a probe names; torch says some of this to itself alone
GPU = {
    "cuda": lambda: torch.backends.cuda.is_built() and torch.version.cuda is not None,
    "cudnn": lambda: backend("cudnn"),
    "cusparselt": lambda: backend("cusparselt"),
    "nvshmem": symmetric_memory,
    "magma": lambda: torch._C._has_magma,
    "cufile": lambda: getattr(torch._C, "_has_gds", hasattr(torch._C, "_gds_register_buffer")),
    "cupti": lambda: setting("-DHAS_CUPTI"),
    "flash-attention": lambda: torch.backends.cuda.is_flash_attention_available(),
    "efficient-attention": lambda: kernel("aten::_efficient_attention_forward"),
    "cudnn-attention": lambda: kernel("aten::_scaled_dot_product_cudnn_attention"),
    "scaled-mm": lambda: kernel("aten::_scaled_mm"),
    "grouped-mm": lambda: kernel("aten::_scaled_grouped_mm"),
    "sparse-semi-structured": lambda: (
        kernel("aten::_cslt_sparse_mm") and kernel("aten::_sparse_semi_structured_linear")
    ),
    "triton": lambda: importlib.util.find_spec("triton") is not None,
    "nccl": lambda: distributed("nccl"),
}
"""Of a build with CUDA, by feature: whether this torch has it. One that a release does not know, it has not."""

CPU = {
    "linalg": linalg,
    "lapack": lambda: torch._C.has_lapack,
    "mkl": lambda: backend("mkl"),
    "mkldnn": lambda: backend("mkldnn"),
    "openmp": lambda: backend("openmp"),
    "nnpack": lambda: backend("nnpack"),
    "spectral": lambda: torch._C.has_spectral,
    "fbgemm": lambda: "fbgemm" in torch.backends.quantized.supported_engines,
    "qnnpack": lambda: "qnnpack" in torch.backends.quantized.supported_engines,
    "onednn": lambda: "onednn" in torch.backends.quantized.supported_engines,
    "kineto": lambda: torch.autograd.kineto_available(),
    "itt": lambda: torch.profiler.itt.is_available(),
    "distributed": lambda: torch.distributed.is_available(),
    "gloo": lambda: distributed("gloo"),
    "ucc": lambda: distributed("ucc"),
    "mpi": lambda: distributed("mpi"),
    "rpc": lambda: importlib.import_module("torch.distributed.rpc").is_available(),
    "compile": lambda: hasattr(torch, "compile") and torch._dynamo.is_dynamo_supported(),
    "new-abi": lambda: torch.compiled_with_cxx11_abi(),
}
"""Of every build, likewise."""


def has(probe: Callable[[], object]) -> bool:
    """Whether a probe says so; it fails where this release has not what it asks."""
    try:
        return bool(probe())
    except (AttributeError, ImportError, RuntimeError):
        return False


def main() -> None:
    """Hold torch against FEATURES, or list what it has."""
    if "--list" in sys.argv:
        for name, probes in (("gpu", GPU), ("cpu", CPU)):
            print(name, *(feature for feature, probe in probes.items() if has(probe)))
        return
    probes = {**GPU, **CPU}
    features = os.environ.get("FEATURES", "").split()
    on, off = ([feature[1:] for feature in features if feature.startswith(mark)] for mark in "+-")
    published = [feature for feature in features if feature[0] not in "+-"]
    unknown = [feature for feature in [*published, *on, *off] if feature not in probes]
    if unknown:
        sys.exit(f"FEATURES names what this check cannot try: {', '.join(unknown)}")
    for requested, expected, what in (
        (published, True, "lacks what the published wheel of its release has"),
        (on, True, "lacks what slipway:cmake switches on"),
        (off, False, "has what slipway:cmake switches off"),
    ):
        wrong = [feature for feature in requested if has(probes[feature]) != expected]
        if wrong:
            sys.exit(f"torch {torch.__version__} {what}: {', '.join(wrong)}")
    print(
        f"{len(published)} features of the published wheel"
        if published
        else "no published wheel of this release was read"
    )
    for state, switched in (("on", on), ("off", off)):
        if switched:
            print(f"{state}, as slipway:cmake says so: {', '.join(switched)}")


main()
