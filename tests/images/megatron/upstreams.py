"""Small local stand-ins of what the Megatron-LM image is made of, served to builds, and the image built of them.

Python's packages are the index's own.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from stacks import plan, versions
from stacks.source import ROOT, read_stack
from tests.images.engine import Image, base_image, build, docker, unique
from tests.images.world import upstreams as world
from tests.images.world.server import Server

TAGS = {
    "NVIDIA/Megatron-LM": ("v1",),
    "NVIDIA/NeMo-Framework-Launcher": ("24.12",),
    "NVIDIA/TransformerEngine": ("v2.12",),
}
"""The repositories, with the releases that builds ask for."""

TOPOLOGY = '<system version="1"><!-- a stand-in --></system>\n'


class Upstreams:
    """What builds fetch: DOCA's packages, the topology file, repositories, and NVIDIA's images in the registry."""

    def __init__(self) -> None:
        cache, self.registry, here = ROOT / ".slipway/cache/world", os.environ["SLIPWAY_REGISTRY"], world.HERE
        files = world._once(
            cache,
            "aks",
            world.digest([here / "Dockerfile", here / "forge", here / "aks"], base_image(), TOPOLOGY),
            _files,
        )
        repositories = world._once(cache, "aks-git", world.digest([here / "repos"], TAGS), _repositories)
        self.commits = {name: world.git(repositories / name, "rev-parse", "HEAD") for name in TAGS}
        self.driver = files / "driver"
        self.server = Server(cache, world._gateway(), 40000 + int(world.digest([], str(cache)), 16) % 10000)
        address = f"{self.server.url}/{files.name}"
        self.mirrors: dict[str, Any] = {
            "images": {"nvcr.io/nvidia": f"{self.registry}/standin/aks"},
            "git": f"{self.server.url}/{repositories.name}",
            "downloads": {
                "https://linux.mellanox.com/public/repo/doca": f"{address}/doca",
                "https://raw.githubusercontent.com/Azure/azhpc-images": f"{address}/azhpc",
            },
        }
        self.topology = {"commit": "a" * 40, "sha256": hashlib.sha256(TOPOLOGY.encode()).hexdigest()}
        self._parents: set[str] = set()

    def parent(self, release: str) -> str:
        """Return the stand-in of one of NVIDIA's images, pushed the first time."""
        name = f"{self.registry}/standin/aks/pytorch:{release}-py3"
        if release not in self._parents:
            row = versions.ngc(release)
            assert row.cuda
            assert row.ubuntu
            assert row.nccl
            world._build("ngc-aks", f"--tag={name}", CUDA_VERSION=row.cuda, UBUNTU=row.ubuntu, NCCL_VERSION=row.nccl)
            docker("push", "--quiet", name)
            self._parents.add(release)
        return name


def _files(folder: Path) -> None:
    world._build("aks-files", f"--output=type=local,dest={folder}")
    for commit in ("a" * 40, versions.aks_node("aks-ndv5").topology.commit):  # type: ignore[union-attr]
        file = folder / "azhpc" / commit / "topology/ndv5-topo.xml"
        file.parent.mkdir(parents=True)
        file.write_text(TOPOLOGY)


def _repositories(folder: Path) -> None:
    for name, tags in TAGS.items():
        sources = [world.HERE / "repos" / name]
        sources += [world.HERE / "repos/extension"] if name in world.EXTENSIONS else []
        world.repository(folder / name, sources, tags, {}, None)


def values(upstreams: Upstreams, stack: str = "aks-megatron", **more: Any) -> dict[str, Any]:
    """Return a stack's configuration, with the stand-ins' commits and topology file, and other keys if some are given."""
    written = read_stack(stack)
    return {
        **written,
        "mirrors": upstreams.mirrors,
        "megatron": upstreams.commits["NVIDIA/Megatron-LM"],
        "launcher": {**written.get("launcher", {}), "commit": upstreams.commits["NVIDIA/NeMo-Framework-Launcher"]},
        "topology": upstreams.topology,
        **more,
    }


def arguments(upstreams: Upstreams, stack: str = "aks-megatron", **more: Any) -> dict[str, str]:
    """Return the build arguments of a stack's image, whose parent is there."""
    config = values(upstreams, stack, **more)
    [image] = plan.make(stack, config).images
    upstreams.parent(config["ngc"])
    return {**image.args, **image.spec.tuning, **image.spec.label_args}


def build_stack(upstreams: Upstreams, stack: str, **more: Any) -> Image:
    """Build a stack's image without Pulumi."""
    tag = unique("megatron")
    done = build(tag, arguments(upstreams, stack, **more), image="megatron")
    assert done.returncode == 0, done.stdout[-8000:]
    return Image(tag)
