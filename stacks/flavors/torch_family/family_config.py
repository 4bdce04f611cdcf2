"""The keys of a stack that builds PyTorch for one CUDA, and the rules between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast, get_args

from pydantic import Field, create_model, model_validator

from stacks.config.model import Model, refuse
from stacks.config.stack_config import StackConfig
from stacks.config.torch import NEWEST, PUBLISHED, Package, TorchConfig, check_published
from stacks.config.values import (
    ArchList,
    Commit,
    CommitPin,
    JobCount,
    March,
    Pin,
    Release,
    TorchRelease,
    Url,
    Version,
    commit_pin,
    pin,
)
from stacks.flavors.torch_family.cmake import DESCRIPTION, Switches
from stacks.flavors.torch_family.components import Component, torch_components
from stacks.flavors.torch_family.max_jobs import MaxJobsConfig
from stacks.versions.archs import arch_list, default_archs
from stacks.versions.cuda_toolkit import Edition, check_cuda_listed, cuda_parent, cuda_release, parent_cudnn
from stacks.versions.distros import check_gcc, distro_names, distro_python, distro_release
from stacks.versions.extras import (
    Extra,
    check_extra,
    check_extra_flavor,
    check_extra_listed,
    check_extras_together,
    extras,
    extras_of,
    vllm_extra_refusals,
)
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import (
    Companion,
    check_audio_wheel,
    check_companion,
    check_cudnn,
    check_python,
    check_torch_cuda,
    check_vllm_listed,
    torch_release,
    triton_warnings,
    vllm_pythons,
    vllm_refusals,
    wheel_abi,
)
from stacks.versions.tables import Reliance
from stacks.versions.torch_libraries import check_cudnn_release, cudnn_warnings, magma_archive, wheel_warnings

TagField = Literal["distro", "abi"]

_ARM = ("armv", "cortex-", "neoverse-", "ampere", "thunderx")
"""How the names of Arm's architectures and of its servers' cores begin (GCC, config/aarch64/aarch64-cores.def)."""


class CommitsConfig(Model):
    """Commits to build instead of the releases' own. Compatibility and tags still follow the version."""

    torch: Commit | None = Field(None, description="Commit of pytorch/pytorch.")
    vision: Commit | None = Field(None, description="Commit of pytorch/vision.")
    audio: Commit | None = Field(None, description="Commit of pytorch/audio.")


class TorchBuildConfig(TorchConfig):
    """The releases of torch, torchvision and torchaudio, and where they come from."""

    version: TorchRelease = Field(NEWEST, description="Release of torch.")
    source: Literal["build", "wheel"] = Field(
        "build",
        description="build compiles them for archList; wheel installs the published wheels, by default of torch "
        f"{PUBLISHED}.",
    )
    commits: CommitsConfig = Field(
        default_factory=CommitsConfig, description="Commits to build instead of the releases' own."
    )

    @model_validator(mode="before")
    @classmethod
    def _published_default(cls, values: Any) -> Any:
        wheel = isinstance(values, Mapping) and values.get("source") == "wheel"
        return {"version": PUBLISHED, **values} if wheel else values

    @model_validator(mode="after")
    def _only_what_is_built(self) -> Self:
        if self.source == "wheel":
            if self.commits != CommitsConfig():
                raise ValueError("`commits` requires `source: build`")
            check_published(self)
        return self

    @property
    def components(self) -> list[Component]:
        """Torch and the companions that the stack has."""
        return torch_components(self.versions, self.commits)


def _with_extras(base: type[Model], name: str, fields: Mapping[str, Any]) -> Any:
    return create_model(name, __base__=base, __doc__=base.__doc__, __module__=__name__, **fields)


def _pin_of(extra: Extra) -> Any:
    check = commit_pin(extra.commit_only) if extra.commit_only else pin(**extra.versions)
    return Annotated[str | Literal[False], check]


class _FamilyExtras(Model):
    """Extensions compiled against the stack's own torch; each a version, a commit, or false for none."""


if TYPE_CHECKING:
    FamilyExtrasConfig = _FamilyExtras
    FamilyJobsConfig = MaxJobsConfig
else:
    FamilyExtrasConfig = _with_extras(
        _FamilyExtras,
        "FamilyExtrasConfig",
        {
            extra.field: (_pin_of(extra), Field(default=extra.default, description=extra.description))
            for extra in extras_of("torch-extras")
        },
    )
    FamilyJobsConfig = _with_extras(
        MaxJobsConfig,
        "FamilyJobsConfig",
        {
            extra.field: (JobCount, Field(None, description=f"{extra.title}."))
            for extra in extras().values()
            if not extra.flavor
        },
    )


class ServeConfig(Model):
    """The server of language models in the image ``serve``."""

    vllm: Release = Field(description="Release of vLLM, whose published wheel is installed.")


class FamilyConfig(StackConfig):
    """The keys of a stack that builds PyTorch for one CUDA."""

    cuda: Version = Field("13.2.1", description="CUDA, as in the tags of nvidia/cuda.")
    cudnn: Version | None = Field(
        None,
        description="Major version of the parent's cuDNN. A release, such as 9.26.0.51, is installed in its place. "
        "Default: the newest that nvidia/cuda has for this CUDA.",
    )
    distro: Version = Field("ubuntu24.04", description="Distribution, as in the tags of nvidia/cuda.")
    python: Version | None = Field(None, description="Python of the distribution. Default: its own python3.")
    torch: TorchBuildConfig = Field(
        default_factory=TorchBuildConfig, description="Versions of torch and its companions."
    )
    arch_list: ArchList | None = Field(
        None, description="Compute capabilities to compile for, such as 8.0 9.0+PTX. Default: by CUDA."
    )
    cmake: Switches = Field(default_factory=dict, description=f"{DESCRIPTION} Needs torch.source: build.")
    transformer_engine: Pin = Field(default=False, description="TransformerEngine in torch: version, commit or false.")
    flash_attention3: CommitPin = Field(default=False, description="FlashAttention 3 in torch: commit or false.")
    extras: FamilyExtrasConfig = Field(
        default_factory=FamilyExtrasConfig,
        description="Extensions in torch-extras. Without any, there is no such image.",
    )
    serve: ServeConfig | None = Field(
        None, description="Server of language models, in an image `serve` on torch-extras, or on torch without extras."
    )
    march: March | None = Field(
        None,
        description="Oldest processor that DeepSpeed's operators for the CPU run on, as gcc's -march names it. "
        "Default: haswell, which has AVX2; on arm64 armv8.2-a.",
    )
    tag_fields: tuple[TagField, ...] = Field(
        get_args(TagField), description="Optional fields of the tags: distro, abi."
    )
    compiler_cache: Url | None = Field(
        None, description="Remote compiler cache (ccache's http storage) that needs no credential. Default: none."
    )
    max_jobs: FamilyJobsConfig = Field(
        default_factory=FamilyJobsConfig, description="Parallel compilers. Default: as cores and memory allow."
    )

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release, that a table confirms it."""
        yield partial(check_cuda_listed, self.cuda)
        if self.cudnn_release:
            yield partial(check_cudnn_release, self.cudnn_release, self.cuda)
        yield from self.torch.listed()
        if self.torch.source == "wheel":
            yield partial(check_torch_cuda, self.torch.version, self.cuda, source="wheel", machine=self.machine)
        for extra in extras().values():
            pin = self.pin(extra)
            if extra.pins_torch and pin and "." in pin:
                yield partial(check_companion, self.torch.version, cast("Companion", extra.name), pin, field=extra.key)
            elif pin and "." in pin:
                yield partial(check_extra_listed, extra.name, pin)
        if self.serve:
            yield partial(check_vllm_listed, self.serve.vllm, torch=self.torch.version)

    def reliances(self) -> Iterator[Reliance]:
        """Yield what the stack takes from tables: CUDA's driver, the distribution's Python and compiler."""
        python = "python" if self.python in {None, distro_release(self.distro).python} else "pythons"
        yield Reliance("cuda", ("release", self.cuda), ("driver",))
        yield Reliance("distros", (self.distro,), (python, "gcc") if self.torch.source == "build" else (python,))

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.arch_list is not None:
            arch_list(self.arch_list, self.cuda, field="archList")
        self._check_cudnn_release()
        self._check_cmake()
        self._check_march()
        self._check_distro()
        self.parent("devel")
        self.parent("base")
        self._check_python()
        if self.torch.source == "build":
            check_torch_cuda(self.torch.version, self.cuda, source="build")
            check_cudnn(self.torch.version, self.cudnn_version, cuda_version=None if self.cudnn else self.cuda)
            check_gcc(self.distro, self.torch.version, self.cuda)
        elif audio := self.torch.companion("audio"):
            check_audio_wheel(self.torch.version, audio, cuda_line=cuda_release(self.cuda).line)
        _ = self.archs
        self._check_extras()
        if self.serve:
            self._check_serve(self.serve.vllm)
        return self

    def _check_serve(self, vllm: str) -> None:
        torch, python = self.torch, self.python_version
        refusals = [
            *vllm_refusals(
                vllm,
                torch=torch.version,
                companions={package: torch.companion(package) for package in get_args(Package)},
                cuda_version=self.cuda,
                archs=self.archs,
                machine=self.machine,
            ),
            *vllm_extra_refusals(self._pins, vllm),
        ]
        supported = vllm_pythons(vllm, torch.version, machine=self.machine)
        if python not in supported:
            field, value, why = "python", python, f"is not supported by vLLM {vllm}"
            if self.python is None:
                field, value, why = "distro", self.distro, f"has Python {python}, which vLLM {vllm} does not support"
            source = "Requires-Python of vLLM's wheel, stacks/versions/torch.toml"
            refusals.append(Incompatible(field, value, why, [f"Python {version}" for version in supported], source))
        refuse(vllm, refusals)

    @property
    def _pins(self) -> dict[str, str]:
        return {extra.name: pin for extra in extras().values() if (pin := self.pin(extra))}

    def _check_extras(self) -> None:
        for name, pinned in self._pins.items():
            check_extra_flavor(name, pinned, self.flavor)
            check_extra(
                name,
                pinned,
                cuda_version=self.cuda,
                python=self.python_version,
                cudnn=self.cudnn_version,
                torch=self.torch.version,
                archs=self.archs,
            )
        check_extras_together(self._pins)

    def _check_cudnn_release(self) -> None:
        if self.cudnn_release and self.torch.source == "wheel":
            major = self.cudnn_release.split(".")[0]
            why = "cannot be installed under published wheels, which bring their own cuDNN"
            raise Incompatible(
                "cudnn", self.cudnn_release, why, (major, "torch.source: build"), "metadata of torch's wheels"
            )

    def _check_cmake(self) -> None:
        if self.cmake and self.torch.source == "wheel":
            why = "cannot be set for published wheels, which are compiled already"
            raise Incompatible("cmake", ", ".join(self.cmake), why, ("torch.source: build", "no cmake"), "torch.source")

    def _check_march(self) -> None:
        architecture, why = self.processor.startswith("armv"), ""
        allowed = {"amd64": ("haswell", "x86-64-v3", "skylake-avx512"), "arm64": ("armv8.2-a", "armv9-a")}[self.machine]
        if self.march and len(self.every_platform) > 1:
            why, allowed = "cannot be set for several platforms, as no name is of both", ("no march", "one platform")
        elif self.machine == "amd64" and self.processor.startswith(_ARM):
            why = f"is a processor of linux/arm64, and the stack is for {self.platform}"
        elif self.machine == "arm64" and not architecture:
            why = "is no Arm architecture, which gcc's -march takes on linux/arm64"
        if why:
            source = "gcc's manual, AArch64 and x86 options"
            raise Incompatible("march", self.processor, why, allowed, source)

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

    def pin(self, extra: Extra) -> str | Literal[False]:
        """Return the version or commit of an extra; False where the stack has none."""
        pin: str | Literal[False] = getattr(self if extra.image == "torch" else self.extras, extra.field)
        return pin

    @property
    def python_version(self) -> str:
        """The images' Python, such as ``3.10``."""
        return distro_python(self.distro, self.python)

    @property
    def processor(self) -> str:
        """The oldest processor that code for the CPU runs on, as gcc's ``-march`` names it."""
        return self.march or {"amd64": "haswell", "arm64": "armv8.2-a"}[self.machine]

    @property
    def archs(self) -> str:
        """The compute capabilities in torch's own form: ``8.0 9.0+PTX``."""
        torch = self.torch.version
        if self.arch_list is None:
            return default_archs("torch", self.cuda, torch=torch, machine=self.machine)
        return arch_list(self.arch_list, self.cuda, torch=torch, field="archList")

    @property
    def abi(self) -> Literal["0", "1"]:
        """The C++ library's ABI (_GLIBCXX_USE_CXX11_ABI) of torch: the compiler's own where it is built."""
        if self.torch.source == "build":
            return "1"
        return wheel_abi(self.torch.version, self.cuda, machine=self.machine)

    def parent(self, edition: Edition) -> str:
        """Return the nvidia/cuda image of an edition; ``devel`` has cuDNN.

        Raises Incompatible: there is none for this CUDA, cuDNN and distribution.
        """
        cudnn = None if edition == "base" else (self.cudnn or self.cudnn_version).split(".")[0]
        tag = cuda_parent(self.cuda, edition, self.distro, cudnn=cudnn, machine=self.machine, packages="apt")
        return f"nvidia/cuda:{tag}"

    @property
    def cudnn_version(self) -> str:
        """The images' cuDNN, such as ``8.9.0.131``: the parent's newest of the major version, or the release named."""
        return self.cudnn_release or parent_cudnn(self.cuda, self.cudnn)

    @property
    def cudnn_release(self) -> str | None:
        """The release of cuDNN that is installed in place of the parent's; None for the parent's own."""
        return self.cudnn if self.cudnn and "." in self.cudnn else None

    @property
    def magma_archive(self) -> str | None:
        """The archive of MAGMA that torch is built with; None where PyTorch has none for this CUDA and machine."""
        return magma_archive(self.cuda, self.machine) if self.torch.source == "build" else None

    @property
    def without(self) -> dict[str, str]:
        """What the published wheel of torch has and the stack's leaves out by choice: the feature, and the reason."""
        if self.magma_archive:
            return {}
        return {"magma": f"PyTorch publishes no archive of MAGMA for CUDA {self.cuda}, stacks/versions/magma.toml"}

    @property
    def warnings(self) -> list[str]:
        """A line if cuDNN or NCCL is known to be wrong, or torch has no Triton, besides those of every stack."""
        if self.torch.source != "build":
            wrong = wheel_warnings(self.torch.version, self.machine, cuda_version=self.cuda)
            return [*super().warnings, *wrong]
        return [
            *super().warnings,
            *cudnn_warnings(self.cudnn_version),
            *triton_warnings(self.torch.version, self.machine),
        ]
