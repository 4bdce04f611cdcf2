"""A stack's whole chain of images on the real engine, built from upstreams on this machine."""

from __future__ import annotations

import hashlib
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
from tests.images.engine import CHECKED, DOCKERFILES, Image, build, docker
from tests.images.published import Published

Variation = tuple[str, Mapping[str, Any]]
"""A stack, and the keys that differ from its file."""

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
    "flash-attention4": "Dao-AILab/flash-attention",
    "deepep": "deepseek-ai/DeepEP",
}
PREFIXES = {"apex": "", "flash-attention4": "fa4-v"}
"""What the tags of a component begin with, if it is no v."""

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
    """Return what the builds of some stacks fetch from the upstreams."""
    tags = {name: {prefix + default("hpc-tools/Dockerfile", argument)} for name, (argument, prefix) in TOOLS.items()}
    pins: dict[str, str] = {}
    tritons: set[str] = set()
    libraries: set[str] = set()
    archives: set[str] = set()
    conda = False
    for stack, more in variations:
        conda = conda or read_stack(stack)["flavor"] == "universal"
        resolved, specs = plan.specs({**read_stack(stack), **more}, f"stack {stack}")
        config: Any = resolved
        for spec in specs:
            args = spec.args
            if spec.target == "source":
                component = args["COMPONENT"]
                tag = PREFIXES.get(component, "v") + args.get("VERSION", "0.0.1")
                tags.setdefault(REPOSITORIES[component], set()).add(tag)
            if args.get("COMPONENT") == "torch":
                libraries |= {
                    f"nvidia-{library}-cu{config.cuda.split('.')[0]}=={version}"
                    for library in upstreams.LIBRARIES
                    if (version := args.get(f"{library.upper()}_VERSION"))
                }
                triton = torch_release(args["VERSION"]).triton.lstrip("=~")
                tritons |= {triton} - {""}
                # From 2.1 on the source says which Triton it is made for.
                if triton and not args["VERSION"].startswith("2.0."):
                    pins[f"v{args['VERSION']}"] = triton
            if "HPCX_ARCHIVE" in args:
                archives.add(args["HPCX_ARCHIVE"])
    return upstreams.Needs(
        tags={name: sorted(releases) for name, releases in sorted(tags.items())},
        pins=dict(sorted(pins.items())),
        tritons=sorted(tritons),
        libraries=sorted(libraries),
        hpcx=sorted(archives),
        conda=conda,
    )


def world(variations: Iterable[Variation], name: str = "world") -> upstreams.World:
    """Make and serve the upstreams of some stacks; a chain makes its parent images when it is built.

    Two worlds that exist at once need different names.
    """
    cache, required = ROOT / ".slipway/cache" / name, needs(variations)
    nvidia = f"{os.environ['SLIPWAY_REGISTRY']}/standin/nvidia"
    return upstreams.make(
        cache, required, nvidia=nvidia, pushed=True, python=upstreams.index(cache, required.tritons, required.libraries)
    )


def values(stack: str, world: upstreams.World, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stack's configuration with the upstreams as mirrors, and with the stand-ins' commits and hashes."""
    config = {**read_stack(stack), "mirrors": world.mirrors, **more}
    if config["flavor"] == "universal":
        config["micromamba"] = {
            "sha256": hashlib.sha256((upstreams.HERE / "common/micromamba").read_bytes()).hexdigest()
        }
    extras = dict(config.get("extras", {}))
    if extras.get("apex"):
        config["extras"] = {**extras, "apex": world.commits["NVIDIA/apex"][: len(extras["apex"])]}
    if extras.get("deepep"):
        config["extras"] = {**config["extras"], "deepep": world.commits["deepseek-ai/DeepEP"]}
    if config.get("flashAttention3"):
        config["flashAttention3"] = world.commits["Dao-AILab/flash-attention"]
    return config


@dataclass(frozen=True)
class Chain:
    """A stack's images as planned, and the name under which the engine has each."""

    planned: Mapping[str, plan.PlannedImage]
    names: Mapping[str, str]

    def image(self, name: str) -> Image:
        """Return one of the images as the engine has it."""
        return Image(self.names[name])


def _planned(stack: str, config: Mapping[str, Any], *, search: bool = False) -> dict[str, plan.PlannedImage]:
    """Return a stack's images as planned; their tags have the right commit after a ``search``, which takes seconds."""
    return {image.spec.name: image for image in plan.make(stack, config, search=search).images}


def build_arguments(image: plan.PlannedImage, names: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return an image's build arguments and flags; ``names`` are those of its parents."""
    siblings = {argument: names[parent] for argument, parent in image.siblings.items()}
    target = [f"--target={image.spec.target}"] if image.spec.target else []
    return {**image.args, **image.content.label_args, **siblings}, target


def checks_arguments(image: plan.PlannedImage, names: Mapping[str, str]) -> dict[str, str]:
    """Return the build arguments of an image's checks; ``names`` are those of the image and its parents.

    The whole Dockerfile needs the arguments of its other stages too; a stack's checks have theirs alone.
    """
    siblings = image.content.checks.siblings if image.content.checks else {}
    arguments, _ = build_arguments(image, names)
    return {**arguments, **image.checks_args, **{argument: names[parent] for argument, parent in siblings.items()}}


def built(
    stack: str,
    world: upstreams.World,
    *,
    have: Mapping[str, str] | None = None,
    by_hand: Mapping[str, Mapping[str, str]] | None = None,
    only: str | None = None,
    **more: Any,
) -> Chain:
    """Build a stack's images and their checks without Pulumi, all or ``only`` one and what it is made of; parents come first.

    Images in ``have`` are not built again. ``by_hand`` has, by image, the arguments that no key of a stack sets.
    """
    config = values(stack, world, more)
    planned = _planned(stack, config)
    if only:
        planned = {name: image for name, image in planned.items() if name in _needed(planned, only)}
    world.provide(_parents(planned))
    prefix = f"slipway-test/{uuid.uuid4().hex[:12]}"
    names = {name: f"{prefix}/{name}" for name in planned} | dict(have or {})
    for name, image in planned.items():
        if name in (have or {}):
            continue
        builds = [(names[name], *build_arguments(image, names))]
        if image.content.checks:
            builds.append(("", checks_arguments(image, names), [CHECKED]))
        for tag, arguments, flags in builds:
            given = {**arguments, **(by_hand or {}).get(name, {})}
            done = build(tag, given, *flags, image=image.spec.dockerfile.partition("/")[0])
            assert done.returncode == 0, f"{stack}: {name}:\n{done.stdout[-6000:]}"
    return Chain(planned, names)


def _needed(planned: Mapping[str, plan.PlannedImage], name: str) -> set[str]:
    """Return an image of a stack and what it is made of."""
    return {name}.union(*(_needed(planned, parent) for parent in planned[name].siblings.values()))


def published(stack: str, world: upstreams.World, folder: Path, **more: Any) -> tuple[Chain, Published]:
    """Build and push a stack's images with `pulumi up`, below a unique path of the registry.

    The names are those that the engine has: an image with checks gets its tag in the registry alone.
    """
    registry = {"kind": "local", "address": os.environ["SLIPWAY_REGISTRY"], "path": f"test-{uuid.uuid4().hex[:8]}"}
    config = values(stack, world, {"registry": registry, **more})
    planned = _planned(stack, config, search=True)
    world.provide(_parents(planned))
    up = Published(folder, stack, **config)
    up.up()
    names = {
        name: image.unchecked_reference if image.content.checks else image.reference for name, image in planned.items()
    }
    return Chain(planned, names), up


def _parents(planned: Mapping[str, plan.PlannedImage]) -> set[str]:
    """Return the tags of nvidia/cuda that are parents of the images."""
    outside = [
        parent for image in planned.values() for parent in image.spec.parents.values() if isinstance(parent, Outside)
    ]
    return {parent.reference.partition(":")[2] for parent in outside if parent.reference.startswith("nvidia/cuda:")}


def remove(chain: Chain) -> None:
    """Remove the names; the engine deletes layers that no other image has."""
    docker("image", "rm", "--force", *chain.names.values())
