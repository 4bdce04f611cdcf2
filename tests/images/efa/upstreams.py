"""Small local stand-ins of what the EFA image is made of, served to builds, and the image built of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stacks import plan, versions
from stacks.source import ROOT, read_stack
from tests.images.engine import Image, base_image, build, docker, unique
from tests.images.world import upstreams as world
from tests.images.world.server import Server

TAGS = {
    "aws/aws-ofi-nccl": ("v1.7.3-aws", "v1.20.0"),
    "NVIDIA/nccl": ("v2.32.3-1",),
    "NVIDIA/nccl-tests": ("v2.13.8", "v2.20.0"),
    "facebookresearch/xformers": ("v0.0.35",),
}
"""The repositories, with the releases that builds ask for."""


class Upstreams:
    """What builds fetch: EFA's installers, archives, packages, repositories, and NVIDIA's images in the registry."""

    def __init__(self) -> None:
        cache, self.registry, here = ROOT / ".slipway/cache/world", os.environ["SLIPWAY_REGISTRY"], world.HERE
        parts = [here / "Dockerfile", here / "forge", here / "efa", here / "repos/aws"]
        files = world._once(
            cache,
            "efa",
            world.digest(parts, base_image()),
            lambda folder: world._build("efa-files", f"--output=type=local,dest={folder}"),
        )
        repositories = world._once(cache, "efa-git", world.digest([here / "repos"], TAGS), _repositories)
        self.server = Server(cache, world._gateway(), 30000 + int(world.digest([], str(cache)), 16) % 10000)
        address = f"{self.server.url}/{files.name}"
        self.mirrors: dict[str, Any] = {
            "images": {"nvcr.io/nvidia": f"{self.registry}/standin/nvcr"},
            "git": f"{self.server.url}/{repositories.name}",
            "downloads": {
                "https://developer.download.nvidia.com": f"{address}/nvidia",
                "https://efa-installer.amazonaws.com": f"{address}/efa",
                "https://github.com/openpmix/openpmix/releases/download": f"{address}/pmix",
                "https://download.open-mpi.org/release/open-mpi": f"{address}/openmpi",
            },
        }
        self._parents: set[str] = set()

    def parent(self, release: str) -> str:
        """Return the stand-in of one of NVIDIA's images, pushed the first time."""
        name = f"{self.registry}/standin/nvcr/pytorch:{release}-py3"
        if release not in self._parents:
            row = versions.ngc(release)
            assert row.cuda
            assert row.ubuntu
            assert row.nccl
            world._build("ngc", f"--tag={name}", CUDA_VERSION=row.cuda, UBUNTU=row.ubuntu, NCCL_VERSION=row.nccl)
            docker("push", "--quiet", name)
            self._parents.add(release)
        return name


def _repositories(folder: Path) -> None:
    for name, tags in TAGS.items():
        sources = [world.HERE / "repos" / name]
        sources += [world.HERE / "repos/extension"] if name in world.EXTENSIONS else []
        world.repository(folder / name, sources, tags, {}, None)


def arguments(upstreams: Upstreams, stack: str = "efa", **more: Any) -> dict[str, str]:
    """Return the build arguments of a stack's image, whose parent is there."""
    config = {**read_stack(stack), "mirrors": upstreams.mirrors, **more}
    [image] = plan.make(stack, config).images
    upstreams.parent(config["ngc"])
    return {**image.args, **image.spec.tuning, **image.spec.label_args}


def build_stack(upstreams: Upstreams, stack: str, **more: Any) -> Image:
    """Build a stack's image without Pulumi."""
    tag = unique("efa")
    done = build(tag, arguments(upstreams, stack, **more), image="efa")
    assert done.returncode == 0, done.stdout[-8000:]
    return Image(tag)
