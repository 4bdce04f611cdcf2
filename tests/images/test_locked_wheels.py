"""Wheels that are compiled with the lock's Python packages, and the image with them: pip asks no index for anything."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from itertools import filterfalse
from pathlib import Path

import pytest

from cli.locking import python_packages, requirement_lists
from stacks import lock, plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT
from stacks.identity import staged_context
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.git_sources import own_commit
from stacks.spec import Outside
from tests.fakes import package_index
from tests.fakes.upstreams import upstreams
from tests.images import chain
from tests.images.engine import build, docker

STACK = "base-cu121"
COMPONENTS = ("torch", "vision", "audio", "apex")
EXTRAS = {"deepspeed": False, "flashAttention": False, "apex": "38a1269"}
CHAIN = (*(f"{name}-{part}" for name in COMPONENTS for part in ("source", "wheel")), "torch", "torch-extras")
"""What is built, parents first."""


@pytest.fixture(scope="module")
def world() -> Iterator[upstreams.World]:
    served = chain.world([(STACK, {})], "locked")
    yield served
    served.server.close()


def _index(world: upstreams.World) -> Path:
    """Serve the stand-ins, a pip, and a published torch, of which no file may be installed; return the folder."""
    folder = world.cache / f"index-{uuid.uuid4().hex[:12]}"
    (python,) = re.findall(r"[^/]+(?=/simple$)", world.mirrors["pythonIndex"])
    shutil.copytree(world.cache / python / "files", folder / "files")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder / "files", "pip"], check=True
    )
    package_index.wheel(folder / "files", "torch", "2.0.1", ["numpy", "triton==2.0.0", "nvidia-cublas-cu11"])
    package_index.wheel(folder / "files", "torchvision", "0.15.2", ["torch", "numpy"])
    package_index.wheel(folder / "files", "torchaudio", "2.0.2", ["torch"])
    package_index.wheel(folder / "files", "nvidia-cublas-cu11", "1.0")
    upstreams.pages(folder)
    return folder


class Locked:
    """The images of a stack with their Python packages locked, built one by one without checks."""

    def __init__(self, world: upstreams.World) -> None:
        self._index = _index(world)
        mirrors = {**world.mirrors, "pythonIndex": f"{world.server.url}/{self._index.name}/simple"}
        self._config = chain.values(STACK, world, {"mirrors": mirrors, "extras": EXTRAS})
        self.mirrors = MirrorsConfig.model_validate(self._config["mirrors"])
        self._planned = {image.spec.name: image for image in plan.make(STACK, self._config, search=False).images}
        self._commits = {
            lock.source_key(source, self.mirrors): world.commits[source.partition(" ")[0]]
            for image in self._planned.values()
            for source in filterfalse(own_commit, image.content.sources)
        }
        self.names = {name: f"slipway-test/{uuid.uuid4().hex[:12]}/{name}" for name in CHAIN}
        parents = [parent for name in CHAIN for parent in self._planned[name].spec.parents.values()]
        references = [parent.reference.partition(":") for parent in parents if isinstance(parent, Outside)]
        world.provide(tag for repository, _, tag in references if repository == "nvidia/cuda")

    def close_index(self) -> None:
        """Take the index's pages away: the files can be fetched by their addresses alone."""
        shutil.rmtree(self._index / "simple")

    def files(self, name: str) -> dict[str, str]:
        """Return what the lock has for an image, for the Python and the C library of the stand-in of its parent."""
        spec = self._planned[name].spec
        assert spec.packages
        packages = spec.packages.model_copy(update={"pythons": ("3.11",), "glibc": "2.36"})
        lists = requirement_lists.read(packages.listed, self.mirrors, self._commits)
        return python_packages.files(packages, spec.platform, self.mirrors, lists)

    def build(self, name: str, files: Mapping[str, str]) -> tuple[int, str]:
        """Build an image with these locked files; return the status and the output."""
        spec = self._planned[name].spec
        packages = spec.packages and spec.packages.model_copy(update={"files": files})
        content = CheckoutContents(contexts(ROOT)).of(spec.model_copy(update={"packages": packages}), checks=False)
        staged_context.write([content], ROOT)
        arguments, flags = chain.build_arguments(self._planned[name], self.names)
        done = build(self.names[name], arguments, *flags, context=ROOT / content.folder, image="")
        return done.returncode, done.stdout


@pytest.mark.slow
def test_locked_wheels_are_compiled_with_locked_files_alone(world: upstreams.World) -> None:
    locked = Locked(world)
    files = {name: locked.files(name) for name in CHAIN if not name.endswith("-source")}
    torch, vision = files["torch-wheel"], files["vision-wheel"]
    assert [address for address in torch if "/pybind11-" in address]  # of requirements.txt in torch's source
    assert [address for address in vision if "/triton-2.0.0" in address]
    assert not [address for of in files.values() for address in of if re.search(r"/torch(vision|audio)?-", address)]
    locked.close_index()
    try:
        for name in CHAIN:
            status, output = locked.build(name, files.get(name, {}))
            assert status == 0, output[-6000:]
        installed = docker("run", "--rm", locked.names["torch-extras"], "pip", "freeze").stdout.split()
        assert "apex==" in " ".join(installed)
        assert {"torch==2.0.1", "torchvision==0.15.2", "torchaudio==2.0.2", "triton==2.0.0"} <= {*installed}
        assert not [line for line in installed if line.startswith("nvidia-")]

        for fault, line in (
            ({it: digest for it, digest in torch.items() if "/pybind11-" not in it}, "found for pybind11"),
            ({it: "0" * 64 if "/ninja-" in it else digest for it, digest in torch.items()}, "DO NOT MATCH THE HASHES"),
        ):
            status, output = locked.build("torch-wheel", fault)
            assert status != 0
            assert line in output
        without = {address: digest for address, digest in vision.items() if "/triton-" not in address}
        status, output = locked.build("vision-wheel", without)
        assert status != 0
        assert "No matching distribution found for triton==2.0.0" in output
    finally:
        docker("image", "rm", "--force", *locked.names.values(), check=False)
