"""``docker buildx bake``, the alternative to a build; built from its Go module on first use."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.measure import MeasuredRun, run
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.machine.steps import step

VERSION: Final = "0.35.0"


def program(checkout: Checkout) -> Path:
    """Return the path of the program, which runs without a Docker client.

    Raises:
        ToolchainError: it cannot be built.
    """
    target = checkout.state / "bench" / f"buildx-{VERSION}"
    if not target.exists():
        with step(f"Building docker buildx {VERSION} (once)"), golang.caches(checkout):
            golang.build(checkout, "buildx", "github.com/docker/buildx/cmd/buildx", target)
    return target


def write_bake(file: Path, registry: str, images: Mapping[str, Mapping[str, str]]) -> None:
    """Write a bake file for images of the context ``dockerfiles`` in the same folder, with build arguments by image."""
    targets = {
        name: {
            "context": "dockerfiles",
            "dockerfile": f"{name}/Dockerfile",
            "platforms": ["linux/amd64"],
            "args": dict(args),
            "tags": [f"{registry}/{name}:latest"],
        }
        for name, args in images.items()
    }
    file.write_text(json.dumps({"group": {"default": {"targets": list(targets)}}, "target": targets}, indent=2) + "\n")


def bake(program: Path, file: Path, *, host: str = "", watch: bool = False) -> MeasuredRun:
    """Build and push the images of a bake file, with the engine at ``host``, else that of the environment.

    Raises:
        SlipwayError: it fails.
    """
    folder = file.parent
    environment = {**os.environ, "BUILDX_CONFIG": str(folder / "buildx")}  # leaves the user's own unchanged
    if host:
        environment["DOCKER_HOST"] = host
    words: list[str | Path] = [program, "bake", "--file", file, "--push", "--progress", "plain"]
    return run(words, cwd=folder, env=environment, watch=watch)
