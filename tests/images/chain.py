"""Builds a stack's whole chain on the real engine, image by image, from its plan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stacks import plan
from stacks.source import ROOT, read_stack
from stacks.spec import Outside
from stacks.versions import torch_release
from tests.images.world import upstreams
from tests.images.world.docker import build, docker

REPOSITORIES = {
    "torch": "pytorch/pytorch",
    "vision": "pytorch/vision",
    "audio": "pytorch/audio",
    "transformer-engine": "NVIDIA/TransformerEngine",
    "flash-attention3": "Dao-AILab/flash-attention",
    "deepspeed": "deepspeedai/DeepSpeed",
    "flash-attention": "Dao-AILab/flash-attention",
    "apex": "NVIDIA/apex",
    "xformers": "facebookresearch/xformers",
}
TOOLS = {
    "NVIDIA/gdrcopy": ("GDRCOPY_VERSION", "v"),
    "linux-rdma/perftest": ("PERFTEST_VERSION", ""),
    "NVIDIA/nvbandwidth": ("NVBANDWIDTH_VERSION", "v"),
    "NVIDIA/nccl-tests": ("NCCL_TESTS_VERSION", "v"),
}


def default(dockerfile: str, argument: str) -> str:
    """Return the default of a Dockerfile's argument."""
    for line in (ROOT / "dockerfiles" / dockerfile).read_text().splitlines():
        if line.startswith(f"ARG {argument}="):
            return line.partition("=")[2]
    raise AssertionError(f"{dockerfile} has no default of {argument}")


def world(cache: Path, registry: str, debian: str, stacks: Iterable[str], more: Mapping[str, Any]) -> upstreams.World:
    """Make the upstreams of some stacks, with ``more`` configuration on top of each, and serve them."""
    tags: dict[str, list[str]] = {name: [] for name in REPOSITORIES.values()}
    for name, (argument, prefix) in TOOLS.items():
        tags[name] = [prefix + default("nccl-tests/Dockerfile", argument)]
    pins: dict[str, str] = {}
    parents: list[str] = []
    archives: list[str] = []
    for stack in stacks:
        for image in plan.make(stack, {**read_stack(stack), **more}).images:
            args = image.spec.args
            if image.spec.target == "source":
                component = args["COMPONENT"]
                tags[REPOSITORIES[component]] += [("" if component == "apex" else "v") + args.get("VERSION", "0.0.1")]
                if component == "torch":
                    triton = torch_release(args["VERSION"]).triton.lstrip("=~")
                    # From 2.1 on the source says which Triton it is made for.
                    if triton and not args["VERSION"].startswith("2.0."):
                        pins[f"v{args['VERSION']}"] = triton
                    elif triton:
                        pins["none"] = triton
            if "HPCX_ARCHIVE" in args:
                archives.append(args["HPCX_ARCHIVE"])
            parents += [
                parent.reference.partition(":")[2]
                for parent in image.spec.parents.values()
                if isinstance(parent, Outside) and parent.reference.startswith("nvidia/cuda:")
            ]
    return upstreams.make(cache, debian=debian, registry=registry, tags=tags, pins=pins, parents=parents, hpcx=archives)


def values(stack: str, made: upstreams.World, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stack's configuration with the upstreams as its mirrors; commits are those of the stand-ins."""
    config = {**read_stack(stack), **more, "mirrors": made.mirrors}
    apex = made.commits["NVIDIA/apex"]
    extras = dict(config.get("extras") or {})
    if config["flavor"] in {"base", "nccl"} and extras.get("apex", True):
        extras["apex"] = apex[: len(str(extras.get("apex", apex)))]
        config["extras"] = extras
    if config.get("flashAttention3"):
        config["flashAttention3"] = made.commits["Dao-AILab/flash-attention"]
    return config


class Chain:
    """A stack's images, built under names of their own."""

    def __init__(self, stack: str, config: Mapping[str, Any], prefix: str) -> None:
        self.images = plan.make(stack, config).images
        self.prefix = prefix
        self.log: dict[str, str] = {}

    def name(self, image: str) -> str:
        """Return the name that an image is built under."""
        return f"standin/{self.prefix}/{image}"

    def args(self, image: plan.PlannedImage) -> dict[str, str]:
        """Return all arguments of an image, siblings by their local names."""
        return {**image.args, **image.spec.tuning, **{key: self.name(parent) for key, parent in image.siblings.items()}}

    def build(self, only: Iterable[str] | None = None) -> Chain:
        """Build the images in order."""
        for image in self.images:
            if only is not None and image.spec.name not in only:
                continue
            dockerfile = ROOT / "dockerfiles" / image.spec.dockerfile
            self.log[image.spec.name] = build(
                ROOT / "dockerfiles",
                args=self.args(image),
                dockerfile=dockerfile,
                target=image.spec.target,
                tag=self.name(image.spec.name),
            )
        return self

    def run(self, image: str, *command: str, user: str | None = None) -> str:
        """Run a command in an image and return what it printed."""
        options = ["--rm", "--network=none", *([f"--user={user}"] if user else [])]
        return docker("run", *options, self.name(image), *command)

    def inspect(self, image: str) -> dict[str, Any]:
        """Return what the engine knows of an image."""
        found: dict[str, Any] = json.loads(docker("image", "inspect", self.name(image)))[0]
        return found

    def remove(self) -> None:
        """Remove the names; the engine drops what nothing else has."""
        docker("image", "rm", "-f", *(self.name(image.spec.name) for image in self.images), check=False)


def debian() -> str:
    """Return where the Debian parent is pulled from."""
    mirrors = json.loads(os.environ.get("SLIPWAY_MIRRORS") or "{}").get("images", {})
    return f"{mirrors.get('docker.io/library/debian', 'debian')}:bookworm-slim"
