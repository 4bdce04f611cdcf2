"""The ``cu132`` chains of real parts: NVIDIA's compiler and libraries, NCCL, PyTorch's wheels, DeepSpeed's source.

Stand-ins remain for HPC-X, OpenMPI's source, the tools that come with NCCL's tests, DCGM, the driver's stubs, and
Ubuntu, which is Debian here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stacks.config.stack_file import ROOT
from tests.fakes.upstreams import upstreams
from tests.images import chain
from tests.images.engine import Image

STACKS = ("base-cu132", "nccl-cu132")
DEEPSPEED = "0.19.7"

CONFIG: Mapping[str, Any] = {
    "torch": {"version": "2.15.0", "audio": False, "source": "wheel"},  # no torchaudio is made for CUDA 13.2
    "extras": {"deepspeed": DEEPSPEED, "flashAttention": False, "apex": False},
    "transformerEngine": False,
    "flashAttention3": False,
}
"""One of the extras: the others take hours to compile."""

BY_HAND = {"deepspeed-wheel": {"DEEPSPEED_OPS": "fused_adam"}}
"""Arguments that no key of a stack sets, by image."""

RELEASED = ("PKG-INFO", "deepspeed.egg-info", "build.txt", "deepspeed/git_version_info_installed.py")
"""Files of DeepSpeed's source distribution that its repository lacks."""


def world() -> upstreams.World:
    """Make and serve the upstreams of the chains; the Python index is the real one."""
    cache, required = ROOT / ".slipway/cache/cuda13", chain.needs((stack, CONFIG) for stack in STACKS)
    return upstreams.make(
        cache, required, nvidia="slipway-test/nvidia", pushed=False, stages="cuda13-", sources=_sources
    )


def _sources(name: str, scratch: Path) -> list[Path]:
    if name != "deepspeedai/DeepSpeed":
        return upstreams.standins(name, scratch)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=deepspeed"]
    subprocess.run([*command, f"--dest={scratch}", f"deepspeed=={DEEPSPEED}"], check=True)
    source = scratch / f"deepspeed-{DEEPSPEED}"
    subprocess.run(["tar", "-xzf", f"{source}.tar.gz", "-C", scratch], check=True)
    subprocess.run(["rm", "-r", *RELEASED], cwd=source, check=True)
    return [source]


def cuobjdump(folder: Path) -> str:
    """Return the option of `docker run` that gives a container NVIDIA's reader of machine code, put into a folder.

    Runtime images lack it.
    """
    requirement = "cuda-toolkit[cuobjdump]==13.2.1"
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", f"--dest={folder}", requirement], check=True)
    with zipfile.ZipFile(next(folder.glob("nvidia_cuda_cuobjdump-*.whl"))) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/bin/cuobjdump"))
        program = Path(wheel.extract(name, folder))
    program.chmod(0o755)
    return f"--volume={program}:/usr/local/bin/cuobjdump:ro"


def code(image: Image, file: str, *options: str) -> tuple[set[str], set[str]]:
    """Return what a program or library has machine code and what it has PTX for, as the image's cuobjdump reads it."""
    output = image.run("sh", "-c", f"cuobjdump --list-elf {file} && cuobjdump --list-ptx {file}", options=options)
    elf, ptx = (set(re.findall(rf"\bsm_(\w+)\.{kind}\b", output)) for kind in ("cubin", "ptx"))
    return elf, ptx


def built(world: upstreams.World, stack: str, archs: str, have: Mapping[str, str] | None = None) -> chain.Chain:
    """Build a chain for some architectures; images in ``have`` are not built again."""
    return chain.built(stack, world, have=have, by_hand=BY_HAND, archList=archs, **CONFIG)
