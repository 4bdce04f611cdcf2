"""``efa``: NVIDIA's PyTorch image for EC2, with Elastic Fabric Adapter in place of its InfiniBand software."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from containers.errors import SlipwayError
from containers.image.gpu.release_order import order
from stacks.config.additions import variables
from stacks.config.model import Environment, Model
from stacks.config.stack_config import StackConfig
from stacks.config.values import (
    ArchList,
    JobCount,
    Pin,
    Release,
    SwitchedRelease,
    SwitchedVersion,
    Version,
    ref,
    switched,
)
from stacks.jobs.mpi_job import mpi_job
from stacks.spec import Cuda, ImageSpec, Outside
from stacks.tags import Suffix
from stacks.versions.archs import arch_list, default_archs
from stacks.versions.efa_ngc import (
    check_efa_listed,
    check_efa_ubuntu,
    check_nccl_not_older,
    check_ngc_listed,
    check_ofi_libfabric,
    check_ofi_nccl,
    compiling_cuda,
    efa_environment,
    efa_installer,
    efa_versions,
    needs_sync_memops,
    ngc_release,
    ofi_nccl_tag,
    plugin_warnings,
)
from stacks.versions.incompatible import Incompatible
from stacks.versions.nodes import node
from stacks.versions.tables import Reliance
from stacks.versions.torch_libraries import (
    check_nccl_listed,
    check_nccl_package,
    nccl_package_warnings,
    nccl_release,
    nccl_warnings,
)


class EfaConfig(Model):
    """EFA's userspace: the installer, and the plugin by which NCCL uses EFA."""

    installer: Version = Field("1.51.0", description="EFA installer.")
    ofi_nccl: Version | None = Field(
        None, description="aws-ofi-nccl to build, such as 1.7.4-aws or 1.19.0. Default: the installer's own."
    )

    @model_validator(mode="after")
    def _has_a_plugin(self) -> Self:
        bundled = efa_installer(self.installer).ofi_nccl
        if self.ofi_nccl:
            ofi_nccl_tag(self.ofi_nccl)
        elif not bundled:
            bundling = [version for version in efa_versions() if efa_installer(version).ofi_nccl]
            listed = self.installer in efa_versions()
            why = (
                "installs no aws-ofi-nccl: set efa.ofiNccl, such as 1.7.4-aws, or use a newer installer"
                if listed
                else "is not a known EFA installer, so its aws-ofi-nccl is not known either: set efa.ofiNccl, such as "
                "1.22.0, and `slipway:unverified: true`, or use another installer"
            )
            raise Incompatible("efa.installer", self.installer, why, bundling, "stacks/versions/efa.toml", known=listed)
        return self

    @property
    def plugin(self) -> str:
        """The version that the plugin reports, such as ``1.7.3-aws``: the one to build, else the installer's."""
        return (self.ofi_nccl or efa_installer(self.installer).ofi_nccl or "").removeprefix("v")


class NcclConfig(Model):
    """NCCL in place of the parent's, and NCCL's tests. A plain version is NCCL's."""

    plain_key: ClassVar[str | None] = "version"

    version: SwitchedVersion = Field(default=False, description="NCCL with its package revision; false: the parent's.")
    source: Literal["package", "build"] = Field("package", description="NVIDIA's package, or compiled from source.")
    tests: SwitchedRelease = Field("2.20.0", description="NCCL tests, or false for none.")


class OpenMpiConfig(Model):
    """OpenMPI rebuilt against the PMIx of the host's Slurm, in place of the installer's."""

    pmix: SwitchedRelease = Field(
        default=False, description="The host's PMIx, as pmix_info prints it there; false keeps the installer's OpenMPI."
    )
    version: Release = Field("4.1.8", description="OpenMPI 4 to build.")

    @field_validator("version")
    @classmethod
    def _options_are_known(cls, value: str) -> str:
        # Of OpenMPI 5, eight rows of maintenance/upstream/contracts/openmpi.toml do not hold (v5.0.10).
        if order(value)[0] != 4:
            raise ValueError("expected a release of OpenMPI 4, such as 4.1.8; others are built with other options")
        return value


def _without_efa(_: str) -> str:
    raise ValueError(
        "expected false: DeepEP writes to NVIDIA's network cards itself, csrc/kernels/ibgda_device.cuh:66 of "
        "deepseek-ai/DeepEP at 567632d, and EFA is none; upstream has none for EFA (deepseek-ai/DeepEP#369)"
    )


class EfaExtrasConfig(Model):
    """Extensions compiled against the parent's torch; each a version, a commit, or false for none."""

    xformers: Pin = Field(default=False, description="xformers.")
    deepep: Annotated[Literal[False], switched(_without_efa)] = Field(
        default=False, description="false: upstream has no DeepEP for EFA."
    )


class Config(StackConfig):
    """The keys of an ``efa`` stack."""

    flavor: Literal["efa"] = "efa"
    ngc: Version = Field("26.03", description="Release of nvcr.io/nvidia/pytorch, the parent image.")
    efa: EfaConfig = Field(default_factory=EfaConfig, description="EFA's installer, and the plugin for NCCL.")
    nccl: NcclConfig = Field(default_factory=NcclConfig, description="NCCL in place of the parent's, and NCCL's tests.")
    openmpi: OpenMpiConfig = Field(
        default_factory=OpenMpiConfig, description="OpenMPI rebuilt against the host's PMIx."
    )
    extras: EfaExtrasConfig = Field(
        default_factory=EfaExtrasConfig, description="Extensions compiled against the parent's torch."
    )
    arch_list: ArchList | None = Field(
        None, description="Compute capabilities to compile for, such as 8.0 9.0+PTX. Default: by CUDA."
    )
    environment: Environment = Field(
        default_factory=dict,
        description="Variables of the image. Those of OpenMPI, NCCL and PMIx that it has by default are checked.",
    )
    max_jobs: JobCount = Field(None, description="Most compilers at once. Default: as cores and memory allow.")

    @field_validator("environment")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        known = efa_environment(value)
        variables({name: text for name, text in value.items() if name not in known})
        for name, text in value.items():
            if name in known and not re.fullmatch(r"[A-Za-z0-9_^.,:/=+-]*", text):
                raise ValueError(f"expected only letters, digits and _ ^ . , : / = + - in {name}")
        return value

    @property
    def added_variables(self) -> Mapping[str, str]:
        """The variables besides those for which the Dockerfile has arguments."""
        known = efa_environment(self.environment)
        return {name: value for name, value in self.environment.items() if name not in known}

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release, that a table confirms it."""
        yield partial(check_ngc_listed, self.ngc)
        yield partial(check_efa_listed, self.efa.installer)
        if self.nccl.version:
            yield partial(check_nccl_listed, self.nccl.version, field="nccl.version")

    def reliances(self) -> Iterator[Reliance]:
        """Yield what the stack takes from tables: of its parent."""
        yield Reliance("ngc", (self.ngc,), ("ubuntu", "cuda", "nccl"))

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        parent = ngc_release(self.ngc)
        check_efa_ubuntu(self.efa.installer, self.ngc)
        if self.nccl.version:
            if parent.cuda:
                nccl_release(self.nccl.version, parent.cuda, field="nccl.version")
            check_nccl_not_older(self.ngc, self.nccl.version)
            if parent.cuda and self.nccl.source == "package":
                check_nccl_package(self.nccl.version, parent.cuda, field="nccl.version")
        check_ofi_libfabric(self.efa.plugin, self.efa.installer)
        if self.nccl_version:
            field = "nccl.version" if self.nccl.version else "ngc"
            check_ofi_nccl(self.efa.plugin, self.nccl_version, field=field)
        _ = self.archs
        return self

    @property
    def warnings(self) -> list[str]:
        """A line for each part that is known to fail, or without a known one for the machine and the CUDA."""
        lines = [*super().warnings, *plugin_warnings(self.efa.plugin)]
        if self.machine == "arm64":  # the table of installers is about amd64
            lines.append(
                f"slipway:efa.installer: {self.efa.installer} may not have all its packages for arm64; the build fails "
                "without them"
            )
        cuda = ngc_release(self.ngc).cuda
        if cuda and self.nccl.version and self.nccl.source == "package":
            lines += nccl_package_warnings(self.nccl.version, cuda, machine=self.machine, field="nccl.version")
        field = "nccl.version" if self.nccl.version else "ngc"
        return [
            *lines,
            *(nccl_warnings(self.nccl_version, machine=self.machine, field=field) if self.nccl_version else ()),
        ]

    @property
    def nccl_version(self) -> str | None:
        """The image's NCCL: the stack's, else the parent's; None if that is not known."""
        return self.nccl.version or ngc_release(self.ngc).nccl

    @property
    def archs(self) -> str:
        """The compute capabilities in torch's own form: ``8.0 9.0+PTX``."""
        cuda = compiling_cuda(self.ngc)
        if self.arch_list is None:
            return default_archs("efa-nccl", cuda)
        return arch_list(self.arch_list, cuda, field="archList")


def images(config: Config) -> list[ImageSpec]:
    """Return the one image of an ``efa`` stack."""
    efa, nccl, plugin = config.efa, config.nccl, config.efa.plugin
    # The table names the NCCL of every parent that is old enough for the rule.
    sync_memops = needs_sync_memops(efa.installer, config.nccl_version or "99")
    environment = efa_environment(config.environment)
    return [
        ImageSpec(
            name="efa",
            dockerfile="efa/Dockerfile",
            platform=config.platform,
            args={
                "EFA_INSTALLER_VERSION": efa.installer,
                "DISABLE_NGC": "--disable-ngc" if efa_installer(efa.installer).disable_ngc else "",
                "OFI_NCCL_VERSION": plugin,
                "OFI_NCCL_TAG": ofi_nccl_tag(efa.ofi_nccl) if efa.ofi_nccl else "",
                "WITH_NCCL": nccl.version or "",
                "WITH_NCCL_FROM": nccl.source,
                "NCCL_TESTS_VERSION": nccl.tests or "",
                "WITH_PMIX": config.openmpi.pmix or "",
                "OPENMPI_RELEASE": config.openmpi.version,
                "XFORMERS_REF": ref(config.extras.xformers),
                "ARCH_LIST": config.archs,
                "SYNC_MEMOPS": "0" if sync_memops else "unset",
                **{f"SET_{name.upper()}": value for name, value in environment.items()},
            },
            tuning={"MAX_JOBS": str(config.max_jobs)} if config.max_jobs else {},
            parents={"BASE_IMAGE": Outside(reference=f"nvcr.io/nvidia/pytorch:{config.ngc}-py3")},
            cuda=Cuda(version=compiling_cuda(config.ngc)),
            compiled={
                **({"/opt/nccl-tests/*": config.archs} if nccl.tests else {}),
                **({"xformers": config.archs} if config.extras.xformers else {}),
            },
            description=f"NVIDIA's PyTorch {config.ngc} on Elastic Fabric Adapter",
            licenses="Apache-2.0 AND BSD-3-Clause AND LicenseRef-NVIDIA-Deep-Learning-Container",
            suffix=Suffix(
                variant="efa",
                ngc=config.ngc,
                efa=efa.installer,
                ofi=plugin.removesuffix("-aws"),
                nccl=nccl.version or None,
                tail=config.tag_suffix,
            ),
        )
    ]


NODES = "eks-p5"
"""The nodes of the example job."""

_PROGRAM = "/opt/nccl-tests/build/all_reduce_perf"


def job(config: Config, images: Mapping[str, str], nodes: int) -> list[dict[str, Any]]:
    """Return an MPIJob that measures an all-reduce over EFA. NCCL's log in it names the network in use.

    Raises SlipwayError: the image has no NCCL tests, or there is no such node for its platform.
    """
    if not config.nccl.tests:
        raise SlipwayError("slipway:nccl: the example runs NCCL's tests, which the stack leaves out (tests: false)")
    if config.platform != "linux/amd64":
        raise SlipwayError(f"slipway:platform: the example is for nodes of {NODES}, which are not {config.platform}")
    command = [_PROGRAM, "-b", "8", "-e", "2G", "-f", "2", "-g", "1"]
    exported = ["PATH", "LD_LIBRARY_PATH", "NCCL_DEBUG=INFO"]
    return [mpi_job("efa", images["efa"], node(NODES), nodes, command=command, exported=exported)]
