"""The keys of a ``universal`` stack, and the rules between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from stacks.config.model import Model, Sha256, matching
from stacks.config.stack_config import StackConfig
from stacks.config.values import ArchList, JobCount, SwitchedVersion, Url, Version, switched
from stacks.flavors.torch_family.cmake import DESCRIPTION, Switches
from stacks.flavors.torch_family.max_jobs import MaxJobsConfig
from stacks.flavors.universal.torch_source import TorchSourceConfig
from stacks.flavors.universal.train import TrainConfig
from stacks.versions.archs import arch_list, default_archs
from stacks.versions.checksums import micromamba_checksum
from stacks.versions.cuda_toolkit import Edition, check_cuda_listed, cuda_parent, parent_cudnn
from stacks.versions.distros import check_gcc, distro_release
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import check_cudnn, check_torch_cuda, torch_release, triton_warnings
from stacks.versions.tables import Reliance
from stacks.versions.torch_libraries import Magma, cudnn_warnings, magma

_cache_key = matching(r"[A-Za-z0-9._-]+", "letters, digits, '.', '_' and '-', such as a date")
_RESERVED_FOLDERS = re.compile(
    r"/(bin|boot|dev|etc|lib[0-9x]*|media|mnt|proc|root|run|sbin|srv|sys|tmp|usr|var)(/.*)?"
    r"|/(home|opt)"
    r"|/opt/(conda|nvidia)(/.*)?"
)
"""Folders of the image that cannot hold a project: those of the system (Filesystem Hierarchy Standard 3.0, chapters 3
and 6), where the build also mounts other things, and those of conda and of nvidia/cuda's entry point.
"""


def _project_folder(value: str) -> str:
    if not re.fullmatch(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9_.-]+)+", value):
        raise ValueError("expected an absolute path of letters, digits and . _ -, without the parts . and ..")
    if _RESERVED_FOLDERS.fullmatch(value):
        raise ValueError(
            "belongs to the image: choose a folder for the project, such as /opt/project or /home/user/project"
        )
    return value


class MicromambaConfig(Model):
    """Which micromamba installs conda's packages."""

    version: Version = Field("2.8.1-0", description="Release of micromamba.")
    sha256: Sha256 | None = Field(
        None, description="SHA-256 of its program for the platform. Default: that of the release, if it is known."
    )


class UniversalJobsConfig(MaxJobsConfig):
    """How many compilers run at once, with those of torchtext."""

    text: JobCount = Field(None, description="torchtext.")


class Config(StackConfig):
    """The keys of a ``universal`` stack."""

    flavor: Literal["universal"] = "universal"
    torch: TorchSourceConfig = Field(
        default_factory=TorchSourceConfig, description="Versions of torch and its companions."
    )
    cuda: SwitchedVersion = Field(
        "13.2.1", description="CUDA, as in the tags of nvidia/cuda; false builds for the CPU alone."
    )
    cudnn: Version | None = Field(
        None, description="Major version of cuDNN. Default: the newest that nvidia/cuda has for this CUDA."
    )
    distro: Version = Field("ubuntu24.04", description="Distribution, as in the tags of nvidia/cuda.")
    python: Version = Field("3.12", description="Python, from conda-forge: any that this torch supports.")
    arch_list: ArchList | None = Field(
        None, description="Compute capabilities to compile for, such as 8.6 or 7.5 8.6+PTX. Default: by CUDA."
    )
    cmake: Switches = Field(default_factory=dict, description=DESCRIPTION)
    magma: Annotated[str | Literal[False] | None, switched(str, null=True)] = Field(
        None, description="MAGMA by its CUDA, such as 113, or false for none. Default: CUDA's own; none on arm64."
    )
    micromamba: MicromambaConfig = Field(
        default_factory=MicromambaConfig, description="The program that installs conda's packages."
    )
    train: tuple[TrainConfig, ...] = Field(
        (TrainConfig(),), description="Images for training, all with the same PyTorch."
    )
    train_image: Edition = Field("devel", description="Edition of nvidia/cuda that train images are built on.")
    project_root: Annotated[str, AfterValidator(_project_folder)] = Field(
        "/opt/project", description="Working directory of train images, and where Python looks for modules."
    )
    cache_key: Annotated[str, AfterValidator(_cache_key)] | None = Field(
        None, description="Any word, such as a date. Change it to rebuild everything without a cache."
    )
    max_jobs: UniversalJobsConfig = Field(
        default_factory=UniversalJobsConfig, description="Parallel compilers. Default: as cores and memory allow."
    )
    compiler_cache: Url | None = Field(
        None, description="Remote compiler cache (ccache's http storage) that needs no credential. Default: none."
    )

    @field_validator("train")
    @classmethod
    def _names_once(cls, value: tuple[TrainConfig, ...]) -> tuple[TrainConfig, ...]:
        names = [train_image.name for train_image in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two images have the name '{name}'")
        return value

    @field_validator("cudnn", "arch_list", "magma")
    @classmethod
    def _needs_cuda(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("cuda") is False:
            raise ValueError("needs CUDA, and 'cuda: false' builds without it")
        return value

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release, that a table confirms it."""
        if self.cuda:
            yield partial(check_cuda_listed, self.cuda)
        yield from self.torch.listed()

    def reliances(self) -> Iterator[Reliance]:
        """Yield what the stack takes from tables: CUDA's driver, the distribution's compiler. Python is conda's."""
        if self.cuda:
            yield Reliance("cuda", ("release", self.cuda), ("driver",))
        yield Reliance("distros", (self.distro,), ("gcc",))

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        torch = self.torch.version
        self._check_packages()
        _ = self.micromamba_args
        supported = torch_release(torch).pythons
        if self.python not in supported:
            source = "the Pythons that it has wheels for, stacks/versions/torch.toml"
            raise Incompatible("python", self.python, f"is not supported by torch {torch}", supported, source)
        if self.cuda:
            _ = self.archs
            self.parent("devel")
            check_torch_cuda(torch, self.cuda, source="build")
            check_cudnn(torch, self.cudnn_version, cuda_version=None if self.cudnn else self.cuda)
            _ = self.magma_package
        check_gcc(self.distro, torch, self.cuda or None)
        return self

    def _check_packages(self) -> None:
        installer, source = distro_release(self.distro).packages, "stacks/versions/distros.toml"
        unavailable = "dnf" if installer == "apt" else "apt"
        for index, train_image in enumerate(self.train):
            if packages := getattr(train_image, unavailable):
                why = f"cannot be installed: {self.distro} has no {unavailable}"
                raise Incompatible(
                    f"train.{index}.{unavailable}", packages[0], why, [f"train.{index}.{installer}"], source
                )
        if installer == "apt":
            return
        if self.machine != "amd64":
            why = f"cannot be built for on {self.distro}"
            source = "MKL is for x86-64, and the repositories that its images enable have no OpenBLAS"
            raise Incompatible("platform", self.platform, why, ["linux/amd64"], source)
        if self.compiler_cache:
            why, source = f"cannot be used on {self.distro}", "the repositories that its images enable have no ccache"
            raise Incompatible("compilerCache", self.compiler_cache, why, ["none"], source)

    @property
    def micromamba_args(self) -> dict[str, str]:
        """The arguments that name the version and digest of micromamba."""
        version = self.micromamba.version
        checksum = self.micromamba.sha256 or micromamba_checksum(version, self.machine)
        return {"MICROMAMBA_VERSION": version, "MICROMAMBA_SHA256": checksum}

    @property
    def archs(self) -> str:
        """The compute capabilities in torch's own form, ``8.0 9.0+PTX``; empty without CUDA."""
        torch = self.torch.version
        if not self.cuda:
            return ""
        if self.arch_list is None:
            return default_archs("torch", self.cuda, torch=torch, machine=self.machine)
        return arch_list(self.arch_list, self.cuda, torch=torch, field="archList")

    @property
    def cudnn_version(self) -> str:
        """The parent's cuDNN, such as ``8.2.0.53``."""
        return parent_cudnn(self.cuda or "", self.cudnn)

    def parent(self, edition: Edition) -> str:
        """Return the parent of the builder or of the train images.

        Raises Incompatible: there is none for this CUDA, cuDNN and distribution.
        """
        if not self.cuda:
            return distro_release(self.distro).image
        cudnn = None if edition == "base" else self.cudnn or self.cudnn_version.split(".")[0]
        return f"nvidia/cuda:{cuda_parent(self.cuda, edition, self.distro, cudnn=cudnn, machine=self.machine)}"

    @property
    def warnings(self) -> list[str]:
        """A line if torch computes wrong with the cuDNN, or has no Triton, besides those of every stack."""
        if not self.cuda:
            return super().warnings
        triton = triton_warnings(self.torch.version, self.machine)
        return [*super().warnings, *cudnn_warnings(self.cudnn_version, field="cuda"), *triton]

    @property
    def without(self) -> dict[str, str]:
        """What the published wheel of torch has and the stack's leaves out by choice: the feature, and the reason."""
        return {} if self.magma_package else {"magma": "slipway:magma is false"}

    @property
    def magma_package(self) -> Magma | None:
        """The MAGMA that torch is built with; None for none."""
        if not self.cuda or self.magma is False:
            return None
        if self.machine != "amd64":
            if self.magma is None:
                return None
            source = "the packages that PyTorch publishes, stacks/versions/magma.toml"
            raise Incompatible("magma", self.platform, "has no MAGMA package", ["false"], source)
        release = magma(self.cuda)
        number = release.package.removeprefix("magma-cuda")
        if self.magma not in {None, number}:
            why = f"is not the MAGMA of CUDA {self.cuda}"
            raise Incompatible("magma", str(self.magma), why, [number, "false"], "a MAGMA is built for one CUDA")
        return release
