"""Small local stand-ins of what the EFA image is made of."""

from __future__ import annotations

from typing import ClassVar

from tests.fakes.upstreams import ngc


class Upstreams(ngc.Upstreams):
    """EFA's installers, archives, packages and repositories."""

    stack = "efa"
    image = "efa"
    standin = "efa"
    parent_stage = "ngc"
    port = 30000
    tags: ClassVar = {
        "aws/aws-ofi-nccl": ("v1.7.3-aws", "v1.20.0"),
        "NVIDIA/nccl": ("v2.32.3-1",),
        "NVIDIA/nccl-tests": ("v2.13.8", "v2.20.0"),
        "facebookresearch/xformers": ("v0.0.35",),
    }
    downloads: ClassVar = {
        "https://developer.download.nvidia.com": "nvidia",
        "https://efa-installer.amazonaws.com": "efa",
        "https://github.com/openpmix/openpmix/releases/download": "pmix",
        "https://download.open-mpi.org/release/open-mpi": "openmpi",
    }
    parts: ClassVar[tuple[str, ...]] = ("repos/aws",)


class Compiled(Upstreams):
    """The same with OpenMPI 4.1.4 as it is released, on a parent with NVIDIA's own compiler and NCCL."""

    standin = "efa-compiled"
    parent_stage = "ngc-compiled"
    port = 50000
    parts = ("efa", "repos/aws")
