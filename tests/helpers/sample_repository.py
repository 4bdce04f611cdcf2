"""A small repository with this project's own ``stacks`` and one Dockerfile, to make history in."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stacks import plan
from stacks.tags import parse
from tests.helpers.program_copy import copy_folders

STACK = "stacks/Pulumi.local.yaml"
DOCKERFILE = "dockerfiles/torch/Dockerfile"
BUILD = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG TORCH_VERSION
COPY torch /torch
ARG LABEL_TITLE LABEL_DESCRIPTION LABEL_VERSION LABEL_LICENSES LABEL_BASE_NAME
"""
"""A Dockerfile that reads the image's arguments, its labels and all of its folder."""


class Checkout:
    """A folder, and git in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def commit(self, path: str, text: str) -> str:
        self.write(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", path)
        return self.git("rev-parse", "HEAD")[:7]

    def rename(self, path: str, to: str) -> str:
        self.git("mv", path, to)
        self.git("commit", "-qam", "rename")
        return self.git("rev-parse", "HEAD")[:7]

    def tag(self, stack: str = "local") -> str:
        (image,) = plan.make(stack, root=self.root).images
        return image.tag

    def revision(self, stack: str = "local") -> str:
        return parse(self.tag(stack))[0].render()


def config(version: str = "2.14.1", comment: str = "") -> str:
    return f"# {comment}\nconfig:\n  slipway:flavor: local\n  slipway:torch: {{version: {version}}}\n"


def make(root: Path, *, program: bool = True) -> Checkout:
    """Write a checkout with one stack; it is no repository yet. Without the program it has what this process reads."""
    checkout = Checkout(root)
    if program:
        copy_folders(checkout.root, "cli", "containers", "stacks", without=["Pulumi.*", "fingerprints.txt"])
    checkout.write(".gitignore", ".slipway\n__pycache__\n")
    checkout.write("dockerfiles/torch/Dockerfile.dockerignore", "*\n!torch\ntorch/README.md\ntorch/Dockerfile*\n")
    checkout.write(DOCKERFILE, BUILD)
    checkout.write("dockerfiles/torch/run", "true\n")
    checkout.write(STACK, config())
    return checkout
