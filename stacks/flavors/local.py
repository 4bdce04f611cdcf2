"""``local``: torch from published wheels on a small Debian or Ubuntu, built and pushed on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from containers.image.gpu.release_order import older
from stacks.config.model import Reference
from stacks.config.stack_config import StackConfig
from stacks.config.torch import TorchConfig, check_published
from stacks.flavors.torch_family.components import features
from stacks.flavors.torch_family.installed_packages import published, torch_constraints
from stacks.spec import Cuda, ImageSpec, Outside, Packages
from stacks.tags import Suffix
from stacks.versions.distros import base_system, distro_names, distro_release, leaves_python_open
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import (
    check_audio_wheel,
    constraints,
    processor_warnings,
    torch_release,
    wheel_glibc,
    wheel_pythons,
)
from stacks.versions.torch_libraries import wheel_warnings

_DISTROS: Final = "stacks/versions/distros.toml"


class Config(StackConfig):
    """The keys of a ``local`` stack."""

    flavor: Literal["local"] = "local"
    base: Reference = Field("debian:bookworm-slim", description="Parent image: Debian or Ubuntu with apt.")
    torch: TorchConfig = Field(default_factory=TorchConfig, description="Versions of torch and its companions.")

    @field_validator("torch")
    @classmethod
    def _published(cls, value: TorchConfig) -> TorchConfig:
        check_published(value)
        return value

    @model_validator(mode="after")
    def _audio_fits(self) -> Self:
        if audio := self.torch.companion("audio"):
            check_audio_wheel(self.torch.version, audio)
        return self

    @model_validator(mode="after")
    def _base_takes_wheels(self) -> Self:
        """Compare the name of the base with the wheels that pip will look for."""
        system, torch = base_system(self.base), self.torch.version
        if system.packages not in {None, "apt"}:
            raise Incompatible(
                "base", self.base, f"has {system.packages}, and the Dockerfile installs with apt", _bases(), _DISTROS
            )
        glibc = wheel_glibc(torch, machine=self.machine)
        if system.glibc and older(system.glibc, glibc):
            why = f"has glibc {system.glibc}, and the {self.machine} wheel of torch {torch} needs {glibc}"
            raise Incompatible(
                "base", self.base, why, _bases(glibc=glibc), f"{_DISTROS}, stacks/versions/cuda_torch.toml"
            )
        pythons = wheel_pythons(torch, machine=self.machine)
        if system.python and system.python not in pythons:
            why = f"has Python {system.python}, of which there is no {self.machine} wheel of torch {torch}"
            raise Incompatible(
                "base", self.base, why, _bases(pythons, glibc), f"{_DISTROS}, stacks/versions/torch.toml"
            )
        return self

    @property
    def warnings(self) -> list[str]:
        """A line if torch uses no GPUs, a library of it is known to be wrong, or the base does not say its Python."""
        torch, machine = self.torch.version, self.machine
        lines = [*super().warnings, *processor_warnings(torch, machine), *wheel_warnings(torch, machine)]
        if leaves_python_open(self.base):
            pythons, glibc = wheel_pythons(torch, machine=machine), wheel_glibc(torch, machine=machine)
            needs = f"{machine} wheels for Python {', '.join(pythons)} and glibc {glibc} or newer"
            lines.append(
                f"slipway:base: '{self.base}' does not say its Python and glibc; torch {torch} has {needs}, and the "
                f"build fails on others; name a release: {', '.join(_bases(pythons, glibc))}"
            )
        return lines

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release, that a table confirms it."""
        yield from self.torch.listed()


def _bases(pythons: Sequence[str] | None = None, glibc: str = "") -> list[str]:
    """Return the images of distributions with apt that have one of some Pythons and a glibc, and Python's own."""
    distros = [release for release in map(distro_release, distro_names()) if release.packages == "apt"]
    fitting = [
        release.image
        for release in distros
        if (pythons is None or release.python in pythons) and not (glibc and older(release.glibc, glibc))
    ]
    return [*fitting, *([f"python:{pythons[-1]}-slim"] if pythons else [])]


def images(config: Config) -> list[ImageSpec]:
    """Return the one image of a ``local`` stack."""
    torch = config.torch
    vision, audio = torch.companion("vision"), torch.companion("audio")
    release = torch_release(torch.version)
    line = release.cuda if config.machine == "amd64" else release.cuda_arm64
    cuda = Cuda(version=line, forward=False) if line else None
    return [
        ImageSpec(
            name="torch",
            dockerfile="torch/Dockerfile",
            platform=config.platform,
            args={
                "TORCH_VERSION": torch.version,
                "TORCHVISION_VERSION": vision or "",
                "TORCHAUDIO_VERSION": audio or "",
                "CONSTRAINTS": constraints(torch.version),
                "REQUIRE_CUDA": cuda.requirement if cuda else "",
                **features(torch.version, config.machine),
            },
            parents={"BASE_IMAGE": Outside(reference=config.base)},
            packages=_packages(config),
            cuda=cuda,
            description="PyTorch, torchvision and torchaudio from published wheels",
            licenses="BSD-3-Clause",
            suffix=Suffix(variant="local", torch=torch.version, vision=vision, audio=audio, tail=config.tag_suffix),
        )
    ]


def _packages(config: Config) -> Packages:
    """Return pip's packages for the Python that the base's name says, else for each with a wheel of torch."""
    torch = config.torch.version
    system = base_system(config.base)
    return Packages(
        requirements=published(config.torch.versions),
        constraints=torch_constraints(torch),
        pythons=(system.python,) if system.python else wheel_pythons(torch, machine=config.machine),
        glibc=(system.glibc or wheel_glibc(torch, machine=config.machine)) if system.python else None,
    )
