"""``megatron``: Megatron-LM on NVIDIA's PyTorch image, for GPU nodes of AKS with InfiniBand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from stacks.config.model import Model, Sha256
from stacks.config.stack_config import StackConfig
from stacks.config.values import ArchList, Commit, JobCount, Pin, Release, SwitchedVersion, Version, ref
from stacks.jobs.pytorch_job import pytorch_job
from stacks.jobs.requirements import Requirements
from stacks.spec import Cuda, ImageSpec, Outside
from stacks.spec import Packages as InstalledPackages
from stacks.tags import Suffix
from stacks.versions.aks import (
    aks_node,
    check_doca_listed,
    check_launcher_listed,
    check_nemo,
    check_nemo_listed,
    check_platform,
    doca_machine,
    launcher_commit,
    launcher_nemo,
)
from stacks.versions.archs import arch_list
from stacks.versions.distros import distro_release
from stacks.versions.efa_ngc import check_ngc_listed, compiling_cuda, ngc_release, ngc_systems
from stacks.versions.extras import check_extra
from stacks.versions.incompatible import Incompatible
from stacks.versions.tables import Reliance
from stacks.versions.torch_libraries import nccl_warnings

_TOOLS: Final = ("pybind11==2.13.6", "setuptools==79.0.1", "wheel", "packaging")
"""What ``megatron/build/megatron`` installs."""
_LAUNCHER: Final = (
    "hera==5.27.0",
    "hydra-core==1.3.2",
    "kubeflow-training==1.9.4",
    "omegaconf==2.3.0",
    "tqdm==4.67.1",
    "zstandard==0.25.0",
)
"""``megatron/build/launcher-requirements.txt``."""
_SDISTS: Final = ("antlr4-python3-runtime",)
"""hydra-core 1.3.2 requires it at 4.9, of which the Python index has no wheel. It requires ``typing`` alone, for Python
before 3.5 (antlr4-python3-runtime 4.9.3, setup.py:8-10)."""


class LauncherConfig(Model):
    """NeMo Framework Launcher; a plain version is its own."""

    plain_key: ClassVar[str | None] = "version"

    version: Version = Field("24.12", description="Release of the launcher.")
    commit: Commit | None = Field(
        None, description="Commit that its tag must name, for a mirror with another one. Default: NVIDIA's."
    )
    nemo: Version | None = Field(
        None, description="Release of nvcr.io/nvidia/nemo that its jobs run in. Default: the one in its configuration."
    )

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if not (self.commit and self.nemo):
            launcher_commit(self.version)
        if self.nemo:
            check_nemo(self.version, self.nemo)
        return self

    @property
    def container(self) -> str:
        """The release of NeMo's image that jobs run in."""
        return self.nemo or launcher_nemo(self.version)


class TopologyConfig(Model):
    """A topology file in place of the pinned one: its commit in Azure/azhpc-images, and its hash."""

    commit: Commit = Field(description="Commit of Azure/azhpc-images.")
    sha256: Sha256 = Field(description="SHA-256 of the file there.")


class DataPackagesConfig(Model):
    """Python packages for data, each at one version. Defaults: those that Megatron-LM 0.18.2 locks."""

    datasets: Release = Field("5.0.0", description="datasets.")
    transformers: Release = Field("5.14.1", description="transformers.")
    tokenizers: Release = Field("0.22.2", description="tokenizers.")
    huggingface_hub: Release = Field("1.24.0", description="huggingface_hub.")


class Config(StackConfig):
    """The keys of a ``megatron`` stack."""

    flavor: Literal["megatron"] = "megatron"
    ngc: Version = Field("26.03", description="Release of nvcr.io/nvidia/pytorch, the parent image.")
    # The newest release whose `pretrain_gpt.py --help` works: from 0.18.0 to 0.19.0 a help text has a bare "%)".
    megatron: Commit = Field(
        "266f1c97dca477ca8b92c16087506da2000b0b84", description="Commit of NVIDIA/Megatron-LM. Default: core_v0.17.1."
    )
    launcher: LauncherConfig = Field(default_factory=LauncherConfig, description="NeMo Framework Launcher.")
    nodes: str = Field(
        "aks-ndv5",
        description="GPU nodes of AKS that the image is for: aks-ndv5, aks-nd-h200-v5, aks-gb200, aks-gb300.",
    )
    topology: TopologyConfig | None = Field(None, description="A topology file for NCCL in place of the pinned one.")
    doca: SwitchedVersion = Field("3.2.1", description="DOCA's userspace with SHARP, or false for none.")
    transformer_engine: Pin = Field(
        default=False, description="TransformerEngine compiled against the parent's torch; false: the parent's own."
    )
    data_packages: DataPackagesConfig = Field(
        default_factory=DataPackagesConfig, description="Python packages for data."
    )
    arch_list: ArchList | None = Field(
        None, description="Compute capabilities to compile for, such as 9.0 10.0+PTX. Default: by nodes."
    )
    max_jobs: JobCount = Field(None, description="Most compilers at once. Default: as cores and memory allow.")

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release, that a table confirms it."""
        yield partial(check_ngc_listed, self.ngc)
        if self.doca:
            yield partial(check_doca_listed, self.doca)
        yield partial(check_launcher_listed, self.launcher.version)
        if self.launcher.nemo:
            yield partial(check_nemo_listed, self.launcher.nemo)

    def reliances(self) -> Iterator[Reliance]:
        """Yield what the stack takes from tables: of its parent, and of DOCA."""
        yield Reliance("ngc", (self.ngc,), ("ubuntu", "cuda") if self.doca else ("cuda",))
        if self.doca:
            yield Reliance("doca", ("release", self.doca), ("ubuntu",))

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        cuda = ngc_release(self.ngc).cuda
        check_platform(self.nodes, self.platform)
        if self.topology and not aks_node(self.nodes).topology:
            raise Incompatible(
                "topology.commit",
                self.topology.commit,
                f"is for a topology file, and {self.nodes} has none: NCCL reads its topology from the system",
                (),
                "stacks/versions/aks.toml",
            )
        _ = self.doca_machine, self.archs
        if self.transformer_engine and cuda:
            check_extra("transformer-engine", self.transformer_engine, cuda_version=cuda, archs=self.archs)
        return self

    @property
    def doca_machine(self) -> str:
        """The platform's name in DOCA's repositories; empty without DOCA."""
        machine = self.platform.removeprefix("linux/")
        return doca_machine(self.doca, self.ngc, machine) if self.doca else ""

    @property
    def profiles(self) -> tuple[str, ...]:
        """The kinds of nodes that the stack names, those of the image first."""
        return (self.nodes, *super().profiles)

    @property
    def warnings(self) -> list[str]:
        """A line if the parent's NCCL is known to fail, besides those of every stack."""
        nccl = ngc_release(self.ngc).nccl
        return [*super().warnings, *(nccl_warnings(nccl, machine=self.machine, field="ngc") if nccl else ())]

    @property
    def archs(self) -> str:
        """The compute capabilities in torch's own form: ``9.0 10.0+PTX``."""
        cuda = compiling_cuda(self.ngc)
        return arch_list(self.arch_list or aks_node(self.nodes).archs, cuda, field="archList")


def images(config: Config) -> list[ImageSpec]:
    """Return the one image of a ``megatron`` stack."""
    launcher, packages = config.launcher, config.data_packages
    pinned = aks_node(config.nodes).topology
    topology = config.topology or pinned
    return [
        ImageSpec(
            name="megatron-lm",
            dockerfile="megatron/Dockerfile",
            platform=config.platform,
            args={
                "MEGATRON_COMMIT": config.megatron,
                "RELEASE_MEGATRON": config.megatron[:7],
                "RELEASE_LAUNCHER": launcher.version,
                "LAUNCHER_COMMIT": launcher.commit or launcher_commit(launcher.version),
                "RELEASE_NEMO": launcher.container,
                "TOPOLOGY_NAME": pinned.name if pinned else "",
                "TOPOLOGY_COMMIT": topology.commit if topology else "",
                "TOPOLOGY_SHA256": topology.sha256 if topology else "",
                "DOCA_RELEASE": config.doca or "",
                "DOCA_MACHINE": config.doca_machine,
                "TRANSFORMER_ENGINE_REF": ref(config.transformer_engine),
                "ARCH_LIST": config.archs,
                "DATASETS_VERSION": packages.datasets,
                "TRANSFORMERS_VERSION": packages.transformers,
                "TOKENIZERS_VERSION": packages.tokenizers,
                "HUGGINGFACE_HUB_VERSION": packages.huggingface_hub,
            },
            tuning={"MAX_JOBS": str(config.max_jobs)} if config.max_jobs else {},
            parents={"BASE_IMAGE": Outside(reference=f"nvcr.io/nvidia/pytorch:{config.ngc}-py3")},
            packages=_installed(config),
            cuda=Cuda(version=compiling_cuda(config.ngc)),
            compiled={"transformer-engine": config.archs} if config.transformer_engine else {},
            description=f"Megatron-LM on NVIDIA's PyTorch {config.ngc} for AKS",
            licenses="Apache-2.0 AND BSD-3-Clause AND LicenseRef-NVIDIA-Deep-Learning-Container",
            suffix=Suffix(
                variant="megatron",
                ngc=config.ngc,
                megatron=config.megatron[:7],
                doca=config.doca or None,
                tail=config.tag_suffix,
            ),
        )
    ]


def _installed(config: Config) -> InstalledPackages:
    """Return what pip steps install, as far as the parent does not have it."""
    pythons, ubuntus = ngc_systems(config.ngc)
    data = config.data_packages.model_dump()
    return InstalledPackages(
        requirements=(*_TOOLS, *_LAUNCHER, *(f"{name}=={version}" for name, version in data.items())),
        pythons=pythons,
        glibc=distro_release(f"ubuntu{ubuntus[0]}").glibc,
        sdists=_SDISTS,
    )


def requirements(config: Config) -> Requirements:
    """Return the GPUs of the stack's kind of node."""
    return Requirements(gpus_per_node=aks_node(config.nodes).gpus)


def job(config: Config, images: Mapping[str, str], nodes: int) -> list[dict[str, Any]]:
    """Return a PyTorchJob that trains a GPT of 337 million parameters on generated text, with a copy on each GPU."""
    kind, name, batch = aks_node(config.nodes), "megatron-lm", 4
    # The operator gives the first pod, and the service before it, this name.
    meeting = f"{name}-master-0:29400"
    command = (
        *("with-profile", kind.profile, "--"),
        *("torchrun", "--nnodes", nodes, "--nproc-per-node", kind.gpus),
        *("--rdzv-id", name, "--rdzv-backend", "c10d", "--rdzv-endpoint", meeting),
        *("pretrain_gpt.py", "--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", 32000),
        *("--num-layers", 24, "--hidden-size", 1024, "--num-attention-heads", 16),
        *("--seq-length", 2048, "--max-position-embeddings", 2048),
        *("--micro-batch-size", batch, "--global-batch-size", batch * nodes * kind.gpus),
        *("--bf16", "--use-distributed-optimizer", "--lr", "6e-5", "--lr-decay-style", "cosine"),
        *("--train-iters", 100, "--eval-iters", 1, "--log-interval", 10),
    )
    return list(
        pytorch_job(
            name,
            images["megatron-lm"],
            kind,
            nodes,
            command=[str(word) for word in command],
            check=["healthcheck", "--compute"],
            probe=["healthcheck"],
        )
    )
