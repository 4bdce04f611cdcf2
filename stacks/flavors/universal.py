"""``universal``: PyTorch from 1.9.1 on for CUDA from 10.2 on or the CPU, from source, and images to train in."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from stacks.config.model import Environment, Model, Sha256
from stacks.config.stack_config import StackConfig
from stacks.config.torch import Torch
from stacks.config.values import DefaultedTorchRelease, SwitchedVersion, Url, Version, switched
from stacks.errors import one_line, suggest
from stacks.flavors.torch_family.config import ArchList, JobCount, MaxJobs, is_commit
from stacks.flavors.torch_family.images import FETCHER, Component, source_of, titles, triton, tuning, wheels
from stacks.jobs.requirements import Requirements, Workspace
from stacks.spec import Branch, ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from stacks.versions.archs import arch_list, default_archs
from stacks.versions.checksums import micromamba_checksum
from stacks.versions.cuda_toolkit import Edition, cuda_parent, cuda_release, parent_cudnn
from stacks.versions.distros import check_gcc, distro_release
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import Machine, check_companion, check_cudnn, check_torch_cuda, constraints, torch_release
from stacks.versions.torch_libraries import Magma, magma

VARIABLES = 8
"""How many variables of its own a train image can have: so many places are in its Dockerfile."""

_WITHOUT_CUDA = {"text"}
"""Components that have no code for a GPU."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIALS?|API_?KEY|ACCESS_KEY)(_|$)", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/]*@")
"""What an address has that carries ``user:password@``."""
_TAKEN = {
    "TZ": "it is set by tz",
    "PATH": "it is the image's own",
    "HOME": "it is the user's own",
    "USER_ID": "it is set by uid",
    "GROUP_ID": "it is set by gid",
    "PROJECT_ROOT": "it is set by slipway:projectRoot",
}
_ARGUMENT = re.compile(r"ENV_[1-8]_(NAME|VALUE)|LABEL_.*")
"""Arguments that the Dockerfile reads after the person's variables, which would win over them."""


_OWN = {"python": "python", "torch": "torch", "pytorch": "torch"} | {
    f"torch{name}": f"torch.{name}" for name in ("vision", "audio", "text")
}
"""The key that says which of a package there is, where a stack has it already."""


def _not_own(value: str) -> str:
    name = re.split(r"[^A-Za-z0-9_.-]", value.rpartition("::")[2])[0].lower()
    if name in _OWN:
        raise ValueError(f"{name} comes with the stack: set slipway:{_OWN[name]}")
    return value


def _matching(pattern: str, example: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected a package such as {example}")
        return value

    return check


def _pip(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][ -~]*", value):
        raise ValueError("expected a requirement of pip's such as seaborn==0.11.2 or 'wandb>=0.12'")
    if _LOGIN.search(value):
        raise ValueError(
            "an address must not carry user:password@, because build arguments stay in the image's history"
        )
    return value


def _not_removed(value: str) -> str:
    if value.endswith("-"):
        raise ValueError("to apt-get install a '-' at the end means to remove the package: leave it out")
    return value


SystemPackage = Annotated[
    str,
    AfterValidator(_matching(r"[a-zA-Z0-9][a-zA-Z0-9+._:~=-]*", "tmux or git=1:2.25.1-1ubuntu3")),
    AfterValidator(_not_removed),
]
DnfPackage = Annotated[str, AfterValidator(_matching(r"[a-zA-Z0-9][a-zA-Z0-9+._:~^-]*", "tmux or git-2.43.5-2.el9"))]
CondaPackage = Annotated[
    str,
    AfterValidator(_matching(r"([a-z0-9-]+::)?[A-Za-z0-9_][A-Za-z0-9_.-]*[=<>!~0-9A-Za-z.*,|_-]*", "numpy=1.20.3")),
    AfterValidator(_not_own),
]
PipPackage = Annotated[str, AfterValidator(_pip), AfterValidator(_not_own)]


def _nonce(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", value):
        raise ValueError("expected letters, digits, '.', '_' and '-', such as a date")
    return value


_IMAGES_OWN = re.compile(
    r"/(bin|boot|dev|etc|lib[0-9x]*|media|mnt|proc|root|run|sbin|srv|sys|tmp|usr|var)(/.*)?"
    r"|/(home|opt)"
    r"|/opt/(conda|nvidia)(/.*)?"
)
"""Folders of the image in which no project can lie: the system's (Filesystem Hierarchy Standard 3.0, chapters 3 and 6),
on some of which the build has something else mounted, and conda's and the entry point's of nvidia/cuda's images.
"""


def _place(value: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_.-]+)+", value) or {".", ".."} & set(value.split("/")):
        raise ValueError("expected an absolute path of letters, digits and . _ -, without . and .. as parts of it")
    if _IMAGES_OWN.fullmatch(value):
        raise ValueError(
            "is the image's own: name a folder for the project, such as /opt/project or /home/user/project"
        )
    return value


def _commit_or_branch(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", value) or ".." in value:
        raise ValueError("expected a commit of 7 to 40 digits 0-9 a-f, or a branch such as release/2.14")
    return value


Ref = Annotated[str, AfterValidator(_commit_or_branch)]


class Commits(Model):
    """Commits to build instead of the releases' own; a branch is one once `slipway lock` has said which."""

    torch: Ref | None = Field(None, description="Commit or branch of pytorch/pytorch.")
    vision: Ref | None = Field(None, description="Commit or branch of pytorch/vision.")
    audio: Ref | None = Field(None, description="Commit or branch of pytorch/audio.")
    text: Ref | None = Field(None, description="Commit or branch of pytorch/text.")

    def component(self, name: str, version: str) -> Component:
        """Return the component of this name at a version, and at what is given here."""
        ref: str | None = getattr(self, name)
        if ref is None or is_commit(ref):
            return Component(name, version, ref)
        repository = "pytorch/pytorch" if name == "torch" else f"pytorch/{name}"
        return Component(name, version, None, Branch(repository=repository, name=ref))


class TorchSource(Torch):
    """Which torch, torchvision, torchaudio and torchtext to build."""

    text: DefaultedTorchRelease = Field(
        None,
        description="Release of torchtext, or false for none. Default: the newest that goes with this torch, if any.",
    )
    commits: Commits = Field(
        default_factory=Commits, description="Commits or branches to build instead of the releases' own."
    )

    @model_validator(mode="after")
    def _text_goes_with_it(self) -> Self:
        if self.text:
            check_companion(self.version, "text", self.text)
        return self

    @property
    def components(self) -> list[Component]:
        """What is built: torch first, then those of its companions that the stack has."""
        text = torch_release(self.version).text if self.text is None else self.text
        found = {
            "torch": self.version,
            "vision": self.companion("vision"),
            "audio": self.companion("audio"),
            "text": text,
        }
        return [self.commits.component(name, version) for name, version in found.items() if version]


class Micromamba(Model):
    """The program that installs conda's packages."""

    version: Version = Field("2.8.1-0", description="Release of micromamba.")
    sha256: Sha256 | None = Field(
        None, description="SHA-256 of its program for the platform. Default: the release's own, where it is known."
    )


class Train(Model):
    """One image to train in: whose it is, and what is in it beside the PyTorch that all of them share."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")] = Field(
        "train", description="The image is train-<name>; with the default, train."
    )
    uid: int = Field(1000, ge=0, lt=2**32 - 1, description="User id that it runs as; 0 is root.")
    gid: int | None = Field(None, ge=0, lt=2**32 - 1, description="Group id that it runs as. Default: as the user id.")
    apt: tuple[SystemPackage, ...] = Field((), description="Packages of Ubuntu or Debian.")
    dnf: tuple[DnfPackage, ...] = Field((), description="Packages of Rocky Linux or UBI.")
    conda: tuple[CondaPackage, ...] = Field((), description="Packages of conda-forge, installed before PyTorch.")
    pip: tuple[PipPackage, ...] = Field((), description="Packages of the Python index, which never replace PyTorch.")
    env: Environment = Field(
        default_factory=dict, description=f"Environment variables, at most {VARIABLES}; nothing secret."
    )
    tz: str = Field("UTC", description="Time zone by its IANA name, such as Asia/Seoul.")

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        if len(value) > VARIABLES:
            raise ValueError(f"{len(value)} variables, and an image can have {VARIABLES}; give others when it is run")
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"'{one_line(name)}' is no name of a variable: expected letters, digits and _")
            if name in _TAKEN:
                raise ValueError(f"the variable {name} cannot be set here: {_TAKEN[name]}")
            if _ARGUMENT.fullmatch(name):
                raise ValueError(f"the variable {name} cannot be set here: it is an argument of the image's own")
            if _LOGIN.search(text):
                raise ValueError(
                    f"the variable {name} must not carry user:password@, which would stay in the image: "
                    "give it when it is run"
                )
            if _SECRET.search(name):
                raise ValueError(
                    f"the variable {name} reads like a secret, which would stay in the image: give it when it is run"
                )
            if not text.isprintable():
                raise ValueError(f"expected one printable line in {name}")
        return value

    @field_validator("tz")
    @classmethod
    def _zone(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", value):
            raise ValueError("expected an IANA time zone such as Asia/Seoul")
        known = zoneinfo.available_timezones()
        if known and value not in known:  # a machine may have no such list; the build has one
            raise ValueError(f"is no IANA time zone{suggest(value, sorted(known))}")
        return value

    @model_validator(mode="after")
    def _root_is_root(self) -> Self:
        if self.uid == 0 and self.group != 0:
            raise ValueError(f"uid 0 is root, whose gid is 0: leave gid out or write 'gid: 0', not {self.gid}")
        return self

    @property
    def group(self) -> int:
        """The group id that it runs as."""
        return self.uid if self.gid is None else self.gid

    @property
    def image(self) -> str:
        """The image's name."""
        return "train" if self.name == "train" else f"train-{self.name}"


class Jobs(MaxJobs):
    """How many compilers run at once, with those of torchtext."""

    text: JobCount = Field(None, description="torchtext.")


class Config(StackConfig):
    """The keys of a ``universal`` stack."""

    flavor: Literal["universal"] = "universal"
    torch: TorchSource = Field(default_factory=TorchSource, description="Versions of torch and its companions.")
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
    magma: Annotated[str | Literal[False] | None, switched(str, null=True)] = Field(
        None, description="MAGMA by its CUDA, such as 113, or false for none. Default: CUDA's own."
    )
    micromamba: Micromamba = Field(default_factory=Micromamba, description="What installs conda's packages.")
    train: tuple[Train, ...] = Field((Train(),), description="Images to train in, all with the same PyTorch.")
    train_image: Edition = Field("devel", description="Edition of nvidia/cuda that train images stand on.")
    project_root: Annotated[str, AfterValidator(_place)] = Field(
        "/opt/project", description="Working directory of train images, and where Python looks for modules."
    )
    clean: Annotated[str, AfterValidator(_nonce)] | None = Field(
        None, description="Any word, such as a date: with another one than before, everything is built without a cache."
    )
    max_jobs: Jobs = Field(default_factory=Jobs, description="Parallel compilers. Default: as cores and memory allow.")
    compiler_cache: Url | None = Field(
        None, description="Remote compiler cache (ccache's http storage) that needs no credential. Default: none."
    )

    @field_validator("train")
    @classmethod
    def _names_once(cls, value: tuple[Train, ...]) -> tuple[Train, ...]:
        names = [one.name for one in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two images are named '{name}'")
        return value

    @field_validator("cudnn", "arch_list", "magma")
    @classmethod
    def _needs_cuda(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("cuda") is False:
            raise ValueError("is of CUDA, and 'cuda: false' builds without it")
        return value

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
            cuda_release(self.cuda)
            _ = self.archs
            self.parent("devel")
            check_torch_cuda(torch, self.cuda, source="build")
            check_cudnn(torch, self.cudnn_version, cuda_version=None if self.cudnn else self.cuda)
            _ = self.magma_package
        check_gcc(self.distro, torch, self.cuda or None)
        return self

    def _check_packages(self) -> None:
        ours, source = distro_release(self.distro).packages, "stacks/versions/distros.toml"
        other = "dnf" if ours == "apt" else "apt"
        for index, one in enumerate(self.train):
            if packages := getattr(one, other):
                why = f"cannot be installed: {self.distro} has no {other}"
                raise Incompatible(f"train.{index}.{other}", packages[0], why, [f"train.{index}.{ours}"], source)
        if ours == "apt":
            return
        if self.machine != "amd64":
            why = f"cannot be built for on {self.distro}"
            source = "MKL is for x86-64, and the repositories that its images enable have no OpenBLAS"
            raise Incompatible("platform", self.platform, why, ["linux/amd64"], source)
        if self.compiler_cache:
            why, source = f"cannot be used on {self.distro}", "the repositories that its images enable have no ccache"
            raise Incompatible("compilerCache", self.compiler_cache, why, ["none"], source)

    @property
    def machine(self) -> Machine:
        """The platform's architecture, as in ``linux/amd64``."""
        return "amd64" if self.platform == "linux/amd64" else "arm64"

    @property
    def micromamba_args(self) -> dict[str, str]:
        """The arguments that say which micromamba is fetched."""
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
            return default_archs("torch", self.cuda, torch=torch, machine=self.machine, field="archList")
        return arch_list(self.arch_list, self.cuda, torch=torch, field="archList")

    @property
    def cudnn_version(self) -> str:
        """The parent's cuDNN, such as ``8.2.0.53``."""
        return parent_cudnn(self.cuda or "", self.cudnn)

    def parent(self, edition: Edition) -> str:
        """Return the image that a build or a train image stands on.

        Raises:
            Incompatible: there is none for this CUDA, cuDNN and distribution.
        """
        if not self.cuda:
            return distro_release(self.distro).image
        cudnn = None if edition == "base" else self.cudnn or self.cudnn_version.split(".")[0]
        return f"nvidia/cuda:{cuda_parent(self.cuda, edition, self.distro, cudnn=cudnn)}"

    @property
    def magma_package(self) -> Magma | None:
        """The MAGMA that torch is built with; None for none."""
        if not self.cuda or self.magma is False:
            return None
        if self.machine != "amd64":
            source = "the packages that PyTorch publishes, stacks/versions/magma.toml"
            raise Incompatible("magma", self.platform, "has no MAGMA package", ["false"], source)
        found = magma(self.cuda)
        own = found.package.removeprefix("magma-cuda")
        if self.magma not in {None, own}:
            why = f"is not the MAGMA of CUDA {self.cuda}"
            raise Incompatible("magma", str(self.magma), why, [own, "false"], "a MAGMA is built for one CUDA")
        return found


def images(config: Config) -> list[ImageSpec]:
    """Return what is built of sources, in one image of compilers, and the images to train in."""
    return list(_Chain(config).specs())


def requirements(config: Config) -> Requirements:
    """Return whose each train image is, where it has the project, and whether there is CUDA.

    The environment of a train image belongs to the group ``conda``, whose id differs by image. An engine reads a user's
    own groups from the image only where the container names no group, and looks further groups up by name in the
    image's /etc/group (moby, daemon/oci_linux.go and github.com/moby/sys/user).
    """
    return Requirements(
        no_gpu=None if config.cuda else "slipway:cuda: 'false'",
        workspaces={
            one.image: Workspace(folder=config.project_root, uid=one.uid, groups=("conda",)) for one in config.train
        },
    )


class _Chain:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.components = config.torch.components
        self.versions = {component.name: component.version or "" for component in self.components}
        self.clean = {"CLEAN": config.clean} if config.clean else {}

    def specs(self) -> Iterator[ImageSpec]:
        yield self._install()
        for component in self.components:
            yield source_of(component, self.config.platform, **self.clean)
            yield self._wheel(component)
        yield self._dist()
        for one in self.config.train:
            yield self._train(one)

    def _suffix(self, **fields: str | None) -> Suffix:
        cuda, distro = self.config.cuda or None, self.config.distro
        return Suffix(variant="universal", cuda=cuda, distro=distro, **{"tail": self.config.tag_suffix, **fields})

    def _install(self) -> ImageSpec:
        magma = self.config.magma_package
        return ImageSpec(
            name="install",
            dockerfile="universal-install/Dockerfile",
            platform=self.config.platform,
            product=True,
            args={
                **self.config.micromamba_args,
                "PYTHON_VERSION": self.config.python,
                "CONSTRAINTS": constraints(self.config.torch.version),
                **({"MAGMA_PACKAGE": magma.package, "MAGMA_ARCHIVE": magma.archive or ""} if magma else {}),
                **self.clean,
            },
            parents={"BASE_IMAGE": Outside(reference=self.config.parent("devel"))},
            description="Compilers and libraries to build PyTorch with",
            licenses="BSD-3-Clause",
            suffix=self._suffix(),
        )

    def _wheel(self, component: Component) -> ImageSpec:
        torch = component.name == "torch"
        jobs, cache = self.config.max_jobs, self.config.compiler_cache
        return ImageSpec(
            name=f"{component.name}-wheel",
            dockerfile="wheels/Dockerfile",
            target="wheel",
            platform=self.config.platform,
            product=True,
            args={
                **component.args,
                "ARCH_LIST": "" if component.name in _WITHOUT_CUDA else self.config.archs,
                **(self._torch_itself if torch else {"TORCH_VERSION": self.versions["torch"]}),
                **self.clean,
            },
            tuning={**tuning(jobs, component.name), **({"CCACHE_REMOTE": cache} if cache else {})},
            parents={
                "BASE_IMAGE": Sibling(image="install"),
                "SOURCE_IMAGE": Sibling(image=f"{component.name}-source"),
                **({} if torch else wheels(self.components[:1])),
            },
            description=f"Wheel of {component.title}",
            licenses="BSD-3-Clause",
            suffix=self._suffix(torch=self.versions["torch"], **component.fields)
            if not torch
            else self._suffix(**component.fields),
        )

    @property
    def _torch_itself(self) -> dict[str, str]:
        """What torch is built with: Triton for GPUs alone."""
        if not self.config.cuda:
            return {"VARIANT": "universal", "TRITON_VERSION": "none"}
        return {"VARIANT": "universal", **triton(self.versions["torch"], self.config.torch.commits.torch)}

    def _dist(self) -> ImageSpec:
        return ImageSpec(
            name="dist",
            dockerfile="universal/Dockerfile",
            target="dist",
            platform=self.config.platform,
            product=True,
            args=self.clean,
            parents={"BASE_IMAGE": FETCHER, **wheels(self.components)},
            description=f"Wheels of {titles(self.components)}",
            licenses="BSD-3-Clause",
            suffix=self._suffix(torch=self.versions["torch"]),
        )

    def _train(self, one: Train) -> ImageSpec:
        config = self.config
        cuda = f"CUDA {config.cuda}" if config.cuda else "the CPU"
        variables = {
            f"ENV_{number}_{part}": text
            for number, pair in enumerate(sorted(one.env.items()), start=1)
            for part, text in zip(("NAME", "VALUE"), pair, strict=True)
        }
        lists = {
            "CONDA_PACKAGES": one.conda,
            "SYSTEM_PACKAGES": one.apt or one.dnf,
            "PIP_PACKAGES": one.pip,
        }
        return ImageSpec(
            name=one.image,
            dockerfile="universal/Dockerfile",
            target="train",
            platform=config.platform,
            args={
                **config.micromamba_args,
                "PYTHON_VERSION": config.python,
                "CONSTRAINTS": constraints(self.versions["torch"]),
                "TORCH_VERSION": self.versions["torch"],
                "TORCHVISION_VERSION": self.versions["vision"],
                "TORCHAUDIO_VERSION": self.versions.get("audio", ""),
                "TORCHTEXT_VERSION": self.versions.get("text", ""),
                "ARCH_LIST": config.archs,
                **{name: "\n".join(packages) for name, packages in lists.items() if packages},
                "USER_ID": str(one.uid),
                "GROUP_ID": str(one.group),
                "PROJECT_ROOT": config.project_root,
                "TZ": one.tz,
                **variables,
                **self.clean,
            },
            parents={
                "BASE_IMAGE": Outside(reference=config.parent(config.train_image)),
                "DIST_IMAGE": Sibling(image="dist"),
            },
            description=f"{titles(self.components)} from source for {cuda}, to train with",
            licenses="BSD-3-Clause",
            suffix=self._suffix(**{name: version for name, version in self.versions.items() if name != "text"}),
        )
