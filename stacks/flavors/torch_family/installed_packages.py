"""What pip installs in the images of PyTorch, where all of it is known before the build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stacks.spec import Packages
from stacks.versions.distros import distro_release
from stacks.versions.pytorch import constraints

BUILD_TOOLS: Final = ("pip", "setuptools<82", "wheel", "packaging", "ninja", "cmake<4")
"""What ``common/build/make-venv`` installs."""


def published(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return what an image with torch's published wheels asks for; ``versions`` are those of torch and companions."""
    wheels = (f"{name if name == 'torch' else f'torch{name}'}=={version}" for name, version in versions.items())
    return ("pip", "setuptools", *wheels)


def torch_constraints(torch: str) -> tuple[str, ...]:
    """Return pip's constraints for a torch, one each."""
    return tuple(constraints(torch).split())


def build_tools(distro: str) -> Packages:
    """Return what pip installs where something is compiled with a distribution's own Python."""
    release = distro_release(distro)
    return Packages(requirements=BUILD_TOOLS, pythons=(release.python,), glibc=release.glibc)
