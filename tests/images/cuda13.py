"""The ``cu132`` chain of real parts: NVIDIA's compiler and libraries, NCCL, PyTorch's wheels, DeepSpeed's source.

Stand-ins that are left: HPC-X, OpenMPI's source and the tools beside NCCL's tests, DCGM, the driver's stubs, and Debian
in Ubuntu's place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stacks import plan
from stacks.source import ROOT, read_stack
from tests.images.chain import TOOLS, default
from tests.images.engine import Image, base_image, build, docker, unique
from tests.images.world import upstreams
from tests.images.world.server import Server

STACK = "nccl-cu132"
DEEPSPEED = "0.19.7"
CUDA = "slipway-test/nvidia"

CONFIG: Mapping[str, Any] = {
    "torch": {"version": "2.15.0", "audio": False, "source": "wheel"},  # no torchaudio is made for CUDA 13.2
    "extras": {"deepspeed": DEEPSPEED, "flashAttention": False, "apex": False},
    "transformerEngine": False,
    "flashAttention3": False,
}
"""Of the extras one: the others take hours to compile."""

BY_HAND = {"deepspeed-wheel": {"DEEPSPEED_OPS": "fused_adam"}}
"""Arguments that no key of a stack sets, by image."""

RELEASED = ("PKG-INFO", "deepspeed.egg-info", "build.txt", "deepspeed/git_version_info_installed.py")
"""What DeepSpeed's source distribution has and its repository has not."""


class Upstreams:
    """What the chain is made of, served to builds; the Python index is the real one."""

    def __init__(self) -> None:
        cache = ROOT / ".slipway/cache/cuda13"
        here = upstreams.HERE
        digest = upstreams.digest([here / "cuda13", here / "forge"], base_image())
        files = upstreams._once(cache, "files", digest, _files)
        for image in plan.make(STACK, {**read_stack(STACK), **CONFIG}).images:
            if archive := image.spec.args.get("HPCX_ARCHIVE"):
                (files / "hpcx" / archive).parent.mkdir(parents=True, exist_ok=True)
                (files / "hpcx" / archive).unlink(missing_ok=True)
                os.link(files / "hpcx/hpcx.tbz", files / "hpcx" / archive)
        repositories = upstreams._once(cache, "git", upstreams.digest([here / "repos"], DEEPSPEED), _repositories)
        for target, edition in (("base", "base"), ("devel", "cudnn-devel")):
            _world(target, f"--tag={CUDA}/cuda:13.2.1-{edition}-ubuntu24.04")
        # The same address each time: it is an argument of the builds that the engine has in its cache.
        bridge = docker("network", "inspect", "--format={{(index .IPAM.Config 0).Gateway}}", "bridge").stdout.strip()
        self.server = Server(cache, bridge, 30000 + int(upstreams.digest([], str(cache)), 16) % 10000)
        self.mirrors = {
            "images": {"docker.io/nvidia": CUDA},
            "git": f"{self.server.url}/{repositories.name}",
            "downloads": {
                "https://developer.download.nvidia.com": f"{self.server.url}/{files.name}/nvidia",
                "https://content.mellanox.com/hpc/hpc-x": f"{self.server.url}/{files.name}/hpcx",
            },
        }


def _world(target: str, *flags: str) -> None:
    dockerfile = f"--file={upstreams.HERE / 'cuda13/Dockerfile'}"
    docker("build", dockerfile, f"--build-arg=DEBIAN={base_image()}", f"--target={target}", *flags, upstreams.HERE)


def _files(folder: Path) -> None:
    _world("files", f"--output=type=local,dest={folder}")


def _repositories(folder: Path) -> None:
    for name, (argument, prefix) in TOOLS.items():
        tag = prefix + default("nccl-tests/Dockerfile", argument)
        upstreams.repository(folder / name, [upstreams.HERE / "repos" / name], [tag], {}, None)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=deepspeed"]
        subprocess.run([*command, f"--dest={scratch}", f"deepspeed=={DEEPSPEED}"], check=True)
        source = Path(scratch, f"deepspeed-{DEEPSPEED}")
        subprocess.run(["tar", "-xzf", f"{source}.tar.gz", "-C", scratch], check=True)
        subprocess.run(["rm", "-r", *RELEASED], cwd=source, check=True)
        upstreams.repository(folder / "deepspeedai/DeepSpeed", [source], [f"v{DEEPSPEED}"], {}, None)


def built(made: Upstreams, archs: str, have: Mapping[str, Image] | None = None) -> dict[str, Image]:
    """Build the chain for some architectures in order; what we ``have`` of it is taken as it is."""
    config = {**read_stack(STACK), **CONFIG, "archList": archs, "mirrors": made.mirrors}
    images = dict(have or {})
    for image in plan.make(STACK, config).images:
        name = image.spec.name
        if name in images:
            continue
        siblings = {argument: images[parent].tag for argument, parent in image.siblings.items()}
        arguments = {**image.args, **siblings, **BY_HAND.get(name, {})}
        flags = [f"--target={image.spec.target}"] if image.spec.target else []
        images[name] = Image(unique(name))
        done = build(images[name].tag, arguments, *flags, image=image.spec.dockerfile.partition("/")[0])
        assert done.returncode == 0, f"{name}: {done.stdout[-6000:]}"
    return images
