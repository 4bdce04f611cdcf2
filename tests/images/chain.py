"""A stack's whole chain of images on the real engine, made of upstreams on this machine."""

from __future__ import annotations

import hashlib
import itertools
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks import plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.spec import Outside
from stacks.versions.pytorch import torch_release
from tests.fakes.upstreams import upstreams
from tests.images.engine import DOCKERFILES, Image, build, docker
from tests.images.published import Published

Variation = tuple[str, Mapping[str, Any]]
"""A stack, and the keys that are other than in its file."""

REPOSITORIES = {
    "torch": "pytorch/pytorch",
    "vision": "pytorch/vision",
    "audio": "pytorch/audio",
    "text": "pytorch/text",
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
    for line in (DOCKERFILES / dockerfile).read_text().splitlines():
        if line.startswith(f"ARG {argument}="):
            return line.partition("=")[2]
    raise AssertionError(f"{dockerfile} has no default of {argument}")


def needs(variations: Iterable[Variation]) -> upstreams.Needs:
    """Return what the builds of some stacks ask of the upstreams."""
    tags = {name: {prefix + default("nccl-tests/Dockerfile", argument)} for name, (argument, prefix) in TOOLS.items()}
    pins: dict[str, str] = {}
    tritons: set[str] = set()
    archives: set[str] = set()
    for stack, more in variations:
        for image in plan.make(stack, {**read_stack(stack), **more}).images:
            args = image.spec.args
            if image.spec.target == "source":
                component = args["COMPONENT"]
                tag = ("" if component == "apex" else "v") + args.get("VERSION", "0.0.1")
                tags.setdefault(REPOSITORIES[component], set()).add(tag)
            if args.get("COMPONENT") == "torch":
                triton = torch_release(args["VERSION"]).triton.lstrip("=~")
                tritons |= {triton} - {""}
                # From 2.1 on the source says which Triton it is made for.
                if triton and not args["VERSION"].startswith("2.0."):
                    pins[f"v{args['VERSION']}"] = triton
            if "HPCX_ARCHIVE" in args:
                archives.add(args["HPCX_ARCHIVE"])
    return upstreams.Needs(
        tags={name: sorted(found) for name, found in sorted(tags.items())},
        pins=dict(sorted(pins.items())),
        tritons=sorted(tritons),
        hpcx=sorted(archives),
    )


def world(variations: Iterable[Variation], name: str = "world") -> upstreams.World:
    """Make the upstreams of some stacks and serve them; their parent images are made when a chain asks for them.

    Two worlds that are there at once need two names.
    """
    cache, asked = ROOT / ".slipway/cache" / name, needs(variations)
    nvidia = f"{os.environ['SLIPWAY_REGISTRY']}/standin/nvidia"
    return upstreams.make(cache, asked, nvidia=nvidia, pushed=True, python=upstreams.index(cache, asked.tritons))


def values(stack: str, made: upstreams.World, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stack's configuration with the upstreams as its mirrors; commits and hashes are those of the stand-ins."""
    config = {**read_stack(stack), "mirrors": made.mirrors, **more}
    if config["flavor"] == "universal":
        config["micromamba"] = {
            "sha256": hashlib.sha256((upstreams.HERE / "common/micromamba").read_bytes()).hexdigest()
        }
    extras = dict(config.get("extras", {}))
    if extras.get("apex"):
        config["extras"] = {**extras, "apex": made.commits["NVIDIA/apex"][: len(extras["apex"])]}
    if config.get("flashAttention3"):
        config["flashAttention3"] = made.commits["Dao-AILab/flash-attention"]
    return config


@dataclass(frozen=True)
class Chain:
    """A stack's images as planned, and the name under which the engine has each."""

    planned: Mapping[str, plan.PlannedImage]
    names: Mapping[str, str]

    def image(self, name: str) -> Image:
        """Return one of the images as the engine has it."""
        return Image(self.names[name])


def _planned(stack: str, config: Mapping[str, Any]) -> dict[str, plan.PlannedImage]:
    return {image.spec.name: image for image in plan.make(stack, config).images}


def asked(image: plan.PlannedImage, names: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the arguments of an image's build, and its flags; ``names`` are those of the images that it stands on."""
    siblings = {argument: names[parent] for argument, parent in image.siblings.items()}
    target = [f"--target={image.spec.target}"] if image.spec.target else []
    return {**image.args, **image.spec.tuning, **image.spec.label_args, **siblings}, target


def built(
    stack: str,
    made: upstreams.World,
    *,
    have: Mapping[str, str] | None = None,
    by_hand: Mapping[str, Mapping[str, str]] | None = None,
    first: int | None = None,
    **more: Any,
) -> Chain:
    """Build a stack's images without Pulumi, all or the ``first`` ones; parents come before children.

    What we ``have`` of them, by name, is taken as it is; ``by_hand`` are arguments that no key of a stack sets, by image.
    """
    config = values(stack, made, more)
    planned = dict(itertools.islice(_planned(stack, config).items(), first))
    made.provide(_parents(planned))
    prefix = f"slipway-test/{uuid.uuid4().hex[:12]}"
    names = {name: f"{prefix}/{name}" for name in planned} | dict(have or {})
    for name, image in planned.items():
        if name in (have or {}):
            continue
        arguments, flags = asked(image, names)
        given = {**arguments, **(by_hand or {}).get(name, {})}
        done = build(names[name], given, *flags, image=image.spec.dockerfile.partition("/")[0])
        assert done.returncode == 0, f"{stack}: {name}:\n{done.stdout[-6000:]}"
    return Chain(planned, names)


def published(stack: str, made: upstreams.World, folder: Path, **more: Any) -> tuple[Chain, Published]:
    """Have a stack's images built and pushed by `pulumi up`, below a path of their own in the registry."""
    registry = {"kind": "local", "address": os.environ["SLIPWAY_REGISTRY"], "path": f"test-{uuid.uuid4().hex[:8]}"}
    config = values(stack, made, {"registry": registry, **more})
    planned = _planned(stack, config)
    made.provide(_parents(planned))
    up = Published(folder, stack, **config)
    up.up()
    return Chain(planned, {name: image.reference for name, image in planned.items()}), up


def _parents(planned: Mapping[str, plan.PlannedImage]) -> set[str]:
    """Return the tags of nvidia/cuda that images stand on."""
    outside = [
        parent for image in planned.values() for parent in image.spec.parents.values() if isinstance(parent, Outside)
    ]
    return {parent.reference.partition(":")[2] for parent in outside if parent.reference.startswith("nvidia/cuda:")}


def remove(chain: Chain) -> None:
    """Remove the names; the engine drops what nothing else has."""
    docker("image", "rm", "--force", *chain.names.values())
