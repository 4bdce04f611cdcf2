"""The keys of a stack that builds PyTorch for one CUDA, and what of them goes together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from stacks.config.model import Model
from stacks.config.stack_config import StackConfig
from stacks.config.torch import Package, Torch, check_published
from stacks.config.values import Url, Version, switched
from stacks.versions.archs import arch_list, default_archs
from stacks.versions.cuda_toolkit import Edition, cuda_parent, cuda_release, parent_cudnn
from stacks.versions.distros import check_gcc, distro_names, distro_python, distro_release
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import (
    Machine,
    check_audio_wheel,
    check_companion,
    check_cudnn,
    check_python,
    check_torch_cuda,
    torch_release,
    wheel_abi,
)
from stacks.versions.torch_libraries import Extra, check_extra

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+)+(?:[.-]?(?:rc|post|dev)[0-9]+)?")


def is_commit(pin: str) -> bool:
    """Say whether a pin names a commit rather than a version."""
    return bool(_COMMIT.fullmatch(pin))


def _commit(value: str) -> str:
    if not is_commit(value):
        raise ValueError("expected a commit: 7 to 40 digits 0-9 a-f")
    return value


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


ArchList = Annotated[str, BeforeValidator(_joined)]
"""Compute capabilities, as text or as a list."""


def _release_or_commit(value: str) -> str:
    if not (is_commit(value) or _RELEASE.fullmatch(value)):
        raise ValueError("expected a version such as 0.9.4, a commit of 7 to 40 digits 0-9 a-f, or false")
    return value


def _commit_only(value: str) -> str:
    if not is_commit(value):
        raise ValueError(
            "expected a commit of 7 to 40 digits 0-9 a-f, or false: what is built of it does not say its release"
        )
    return value


def ref(pin: str | Literal[False]) -> str:
    """Return the tag or commit that a pin names in its repository; empty where it is switched off."""
    return "" if not pin else pin if is_commit(pin) else f"v{pin}"


Commit = Annotated[str, AfterValidator(_commit)]
Pin = Annotated[str | Literal[False], switched(_release_or_commit)]
CommitPin = Annotated[str | Literal[False], switched(_commit_only)]
"""What cannot be asked for by version: Apex calls itself 0.1 in all releases, FlashAttention 3 has none of its own."""
TagField = Literal["distro", "abi"]


class Commits(Model):
    """Commits to build instead of the releases' own; the version stays what compatibility and tags go by."""

    torch: Commit | None = Field(None, description="Commit of pytorch/pytorch.")
    vision: Commit | None = Field(None, description="Commit of pytorch/vision.")
    audio: Commit | None = Field(None, description="Commit of pytorch/audio.")


class TorchBuild(Torch):
    """Which torch, torchvision and torchaudio, and where they come from."""

    source: Literal["build", "wheel"] = Field(
        "build", description="build compiles them for the arch list; wheel installs the published ones."
    )
    commits: Commits = Field(default_factory=Commits, description="Commits to build instead of the releases' own.")

    @model_validator(mode="after")
    def _only_what_is_built(self) -> Self:
        if self.source == "wheel":
            if self.commits != Commits():
                raise ValueError("commits are for source: build; a published wheel has the commit that it has")
            check_published(self)
        return self


class Extras(Model):
    """Extensions compiled against the stack's own torch; each a version, a commit, or false for none."""

    deepspeed: Pin = Field("0.19.7", description="DeepSpeed.")
    flash_attention: Pin = Field("2.8.3", description="FlashAttention 2.")
    apex: CommitPin = Field(
        "becbb77cea4cb54f2929f7c938a0a6f7dd1fdc39", description="NVIDIA Apex, from its repository: commit or false."
    )
    xformers: Pin = Field(default=False, description="xformers.")


def _count(value: Any) -> Any:
    # Of itself pydantic reads true as 1.
    if value is None or isinstance(value, bool):
        raise ValueError("expected a number of compilers, such as 4")
    return value


JobCount = Annotated[PositiveInt | None, BeforeValidator(_count), Field(validate_default=False)]
"""How many compilers run at once; None, which nobody can write, where a build is to find out."""


class MaxJobs(Model):
    """How many compilers run at once, by component; a plain number is for all of them. Flavors add their own."""

    default: JobCount = Field(None, description="For every component that is not named.")
    torch: JobCount = Field(None, description="torch.")
    vision: JobCount = Field(None, description="torchvision.")
    audio: JobCount = Field(None, description="torchaudio.")

    @model_validator(mode="before")
    @classmethod
    def _plain_number(cls, values: Any) -> Any:
        if values is None:
            raise ValueError("expected a number of compilers, or a mapping of them")
        return values if isinstance(values, Mapping | Model) else {"default": values}

    def of(self, component: str) -> int | None:
        """Return a component's number of jobs; None where its build is to find one."""
        own: int | None = getattr(self, component.replace("-", "_"))
        return own or self.default


class FamilyJobs(MaxJobs):
    """Those of the torch family."""

    transformer_engine: JobCount = Field(None, description="TransformerEngine.")
    flash_attention3: JobCount = Field(None, description="FlashAttention 3.")
    deepspeed: JobCount = Field(None, description="DeepSpeed.")
    flash_attention: JobCount = Field(None, description="FlashAttention 2.")
    apex: JobCount = Field(None, description="Apex.")
    xformers: JobCount = Field(None, description="xformers.")


class FamilyConfig(StackConfig):
    """The keys of a stack that builds PyTorch for one CUDA."""

    cuda: Version = Field("13.2.1", description="CUDA, as in the tags of nvidia/cuda.")
    cudnn: Version | None = Field(
        None, description="Major version of cuDNN. Default: the newest that nvidia/cuda has for this CUDA."
    )
    distro: Version = Field("ubuntu24.04", description="Distribution, as in the tags of nvidia/cuda.")
    python: Version | None = Field(None, description="Python of the distribution. Default: its own python3.")
    torch: TorchBuild = Field(default_factory=TorchBuild, description="Versions of torch and its companions.")
    arch_list: ArchList | None = Field(
        None,
        description="Compute capabilities to compile for, such as 8.0 9.0+PTX. Default: by CUDA.",
    )
    transformer_engine: Pin = Field(default=False, description="TransformerEngine in torch: version, commit or false.")
    flash_attention3: CommitPin = Field(default=False, description="FlashAttention 3 in torch: commit or false.")
    extras: Extras = Field(default_factory=Extras, description="Extensions in torch-extras; with none, no such image.")
    tag_fields: tuple[TagField, ...] = Field(
        get_args(TagField), description="Optional fields that the tags carry: distro, abi."
    )
    compiler_cache: Url | None = Field(
        None, description="Remote compiler cache (ccache's http storage) that needs no credential. Default: none."
    )
    max_jobs: FamilyJobs = Field(
        default_factory=FamilyJobs, description="Parallel compilers. Default: as cores and memory allow."
    )

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        cuda_release(self.cuda)
        if self.arch_list is not None:
            arch_list(self.arch_list, self.cuda, field="archList")
        self._check_distro()
        self.parent("devel")
        self.parent("base")
        check_torch_cuda(self.torch.version, self.cuda, source=self.torch.source, machine=self.machine)
        self._check_python()
        if self.torch.source == "build":
            check_cudnn(self.torch.version, self.cudnn_version, cuda_version=None if self.cudnn else self.cuda)
            check_gcc(self.distro, self.torch.version, self.cuda)
        elif audio := self.torch.companion("audio"):
            check_audio_wheel(self.torch.version, audio, cuda_line=cuda_release(self.cuda).line)
        _ = self.archs
        self._check_extras()
        return self

    def _check_extras(self) -> None:
        extras: dict[str, tuple[Extra, str | Literal[False]]] = {
            "transformerEngine": ("transformer-engine", self.transformer_engine),
            "flashAttention3": ("flash-attention3", self.flash_attention3),
            "extras.deepspeed": ("deepspeed", self.extras.deepspeed),
            "extras.flashAttention": ("flash-attention", self.extras.flash_attention),
        }
        for field, (name, pin) in extras.items():
            if pin:
                check_extra(
                    name,
                    pin,
                    cuda_version=self.cuda,
                    python=self.python_version,
                    cudnn=self.cudnn_version,
                    torch=self.torch.version,
                    archs=self.archs,
                    field=field,
                )
        if self.extras.xformers and not is_commit(self.extras.xformers):
            check_companion(self.torch.version, "xformers", self.extras.xformers, field="extras.xformers")

    def _check_distro(self) -> None:
        if distro_release(self.distro).packages != "apt":
            fitting = [name for name in cuda_release(self.cuda).distros if name in distro_names()]
            apt = [name for name in fitting if distro_release(name).packages == "apt"]
            source = "the Dockerfiles install with apt, stacks/versions/distros.toml"
            raise Incompatible("distro", self.distro, "has no apt", apt, source)

    def _check_python(self) -> None:
        python, torch = self.python_version, self.torch.version
        field = "distro" if self.python is None else "python"
        if self.torch.source == "wheel":
            companions = {name: version for name in get_args(Package) if (version := self.torch.companion(name))}
            check_python(torch, python, machine=self.machine, companions=companions, field=field)
            return
        supported = torch_release(torch).pythons
        if python not in supported:
            value, why = self.distro, f"has Python {python}, which torch {torch} does not support"
            if self.python is not None:
                value, why = python, f"is not supported by torch {torch}"
            source = "the Pythons that it has wheels for, stacks/versions/torch.toml"
            raise Incompatible(field, value, why, [f"Python {version}" for version in supported], source)

    @property
    def machine(self) -> Machine:
        """The platform's architecture, as in ``linux/amd64``."""
        return "amd64" if self.platform == "linux/amd64" else "arm64"

    @property
    def python_version(self) -> str:
        """The images' Python, such as ``3.10``."""
        return distro_python(self.distro, self.python)

    @property
    def archs(self) -> str:
        """The compute capabilities in torch's own form: ``8.0 9.0+PTX``."""
        torch = self.torch.version
        if self.arch_list is None:
            return default_archs("torch", self.cuda, torch=torch, machine=self.machine, field="archList")
        return arch_list(self.arch_list, self.cuda, torch=torch, field="archList")

    @property
    def abi(self) -> Literal["0", "1"]:
        """The C++ library's ABI (_GLIBCXX_USE_CXX11_ABI) of torch: the compiler's own where it is built."""
        if self.torch.source == "build":
            return "1"
        return wheel_abi(self.torch.version, self.cuda, machine=self.machine)

    def parent(self, edition: Edition) -> str:
        """Return the nvidia/cuda image of an edition; ``devel`` has cuDNN.

        Raises:
            Incompatible: there is none for this CUDA, cuDNN and distribution.
        """
        cudnn = None if edition == "base" else self.cudnn or self.cudnn_version.split(".")[0]
        return f"nvidia/cuda:{cuda_parent(self.cuda, edition, self.distro, cudnn=cudnn, packages='apt')}"

    @property
    def cudnn_version(self) -> str:
        """The parent's cuDNN, such as ``8.9.0.131``; the newest of the major version that the stack names."""
        return parent_cudnn(self.cuda, self.cudnn)
