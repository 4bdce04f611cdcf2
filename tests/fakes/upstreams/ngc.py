"""Small local stand-ins of what an image on NVIDIA's PyTorch is made of, served to builds, and images built of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from stacks import plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.versions.efa_ngc import ngc_release
from tests.fakes.upstreams import upstreams as world
from tests.fakes.upstreams.server import Server
from tests.images.engine import CHECKED, Image, base_image, build, docker, unique
from tests.images.published import Published


class Upstreams:
    """What the builds of a stack fetch: packages, archives and repositories, and NVIDIA's images in the registry."""

    stack: ClassVar[str]
    """The stack whose image is built where no other is named."""

    image: ClassVar[str]
    """The folder of the image's Dockerfile."""

    standin: ClassVar[str]
    """The folder of the world that holds its stand-ins; its files' stage is ``<standin>-files``."""

    parent_stage: ClassVar[str]
    """The stage of the world's Dockerfile that NVIDIA's images are made by."""

    port: ClassVar[int]
    """The lowest of the 10000 ports that one is taken of: with the same address, builds are cached."""

    tags: ClassVar[Mapping[str, tuple[str, ...]]]
    """The repositories, with the releases that builds ask for."""

    downloads: ClassVar[Mapping[str, str]]
    """The folders of the files by the addresses that they stand in for."""

    parts: ClassVar[tuple[str, ...]] = ()
    """Further folders whose content goes into the files."""

    facts: ClassVar[tuple[str, ...]] = ()
    """Further values that decide their content."""

    def __init__(self) -> None:
        cache = self.cache = ROOT / ".slipway/cache/world"
        self.registry = os.environ["SLIPWAY_REGISTRY"]
        parts = [world.HERE / part for part in ("Dockerfile", "common", self.standin, *self.parts)]
        content = world.digest(parts, base_image(), *self.facts)
        self.files = world.once(cache, self.standin, content, self.fill)
        content = world.digest([world.HERE / "repos"], self.tags)
        repositories = world.once(cache, f"{self.standin}-git", content, self._repositories)
        self.commits = {name: world.git(repositories / name, "rev-parse", "HEAD") for name in self.tags}
        self.server = Server(cache, world.gateway(), self.port + int(world.digest([], str(cache)), 16) % 10000)
        address = f"{self.server.url}/{self.files.name}"
        self.mirrors: dict[str, Any] = {
            "images": {"nvcr.io/nvidia": f"{self.registry}/standin/{self.standin}"},
            "git": f"{self.server.url}/{repositories.name}",
            "downloads": {theirs: f"{address}/{folder}" for theirs, folder in self.downloads.items()},
        }
        self._parents: set[str] = set()

    def fill(self, folder: Path) -> None:
        """Fill a folder with the files."""
        world.build(f"{self.standin}-files", f"--output=type=local,dest={folder}")

    def _repositories(self, folder: Path) -> None:
        for name, tags in self.tags.items():
            sources = [world.HERE / "repos" / name]
            sources += [world.HERE / "repos/extension"] if name in world.EXTENSIONS else []
            world.repository(folder / name, sources, tags, {}, None)

    def parent(self, release: str) -> str:
        """Return the stand-in of one of NVIDIA's images; the first call pushes it."""
        name = f"{self.registry}/standin/{self.standin}/pytorch:{release}-py3"
        if release not in self._parents:
            row = ngc_release(release)
            assert row.cuda
            assert row.ubuntu
            assert row.nccl
            build_args = {"CUDA_VERSION": row.cuda, "UBUNTU": row.ubuntu, "NCCL_VERSION": row.nccl}
            world.build(self.parent_stage, f"--tag={name}", **build_args)
            docker("push", "--quiet", name)
            self._parents.add(release)
        return name

    def values(self, stack: str | None = None, **more: Any) -> dict[str, Any]:
        """Return a stack's configuration with the stand-ins and further keys."""
        return {**read_stack(stack or self.stack), "mirrors": self.mirrors, **more}

    def arguments(self, stack: str | None = None, **more: Any) -> dict[str, str]:
        """Return the build arguments of a stack's image, and make its parent."""
        config = self.values(stack, **more)
        [image] = plan.make(stack or self.stack, config, search=False).images
        self.parent(config["ngc"])
        return {**image.args, **image.checks_args, **image.content.label_args}

    def published(self, folder: Path, **more: Any) -> Published:
        """Build and push the stack's image with `pulumi up` from the branch `main`; ``folder`` gets its state."""
        config = self.values(**more)
        self.parent(config["ngc"])
        stack = Published(folder, self.stack, **config)
        stack.up(SLIPWAY_BRANCH="main")
        return stack

    def built(self, stack: str | None = None, **more: Any) -> Image:
        """Build a stack's image and its checks without Pulumi."""
        tag = unique(self.image)
        for flag in (CHECKED, f"--tag={tag}"):
            done = build("", self.arguments(stack, **more), flag, image=self.image)
            assert done.returncode == 0, done.stdout[-8000:]
        return Image(tag)
