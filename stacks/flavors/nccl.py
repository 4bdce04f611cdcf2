"""``nccl``: PyTorch on NCCL, HPC-X and their tests, with the compilers to build more on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from containers.errors import SlipwayError
from containers.registry.reference import Reference as ImageReference
from stacks.config.model import Reference, matching
from stacks.config.values import JobCount, Version
from stacks.flavors.torch_family.components import compiled_tools, tuning
from stacks.flavors.torch_family.family_config import FamilyConfig, FamilyJobsConfig
from stacks.flavors.torch_family.family_images import Variant, suffix
from stacks.flavors.torch_family.family_images import images as family
from stacks.flavors.torch_family.installed_packages import build_tools
from stacks.spec import Cuda, ImageSpec, Outside, Parent, Sibling
from stacks.tags import parse
from stacks.versions.incompatible import Incompatible
from stacks.versions.torch_libraries import (
    check_nccl_listed,
    check_nccl_package,
    hpcx_archive,
    hpcx_warnings,
    nccl_package_warnings,
    nccl_release,
    nccl_warnings,
)

_archive = matching(
    r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/-]*\.tbz",
    "a path ending in .tbz, such as v2.26_cuda13/hpcx-v2.26-...-x86_64.tbz",
)
_TAGGED = re.compile(
    r"(?P<cuda>[0-9.]+)(?:-cudnn[0-9]*)?-devel-(?P<distro>[a-z]+[0-9.]+)-nccl(?P<nccl>[0-9.]+-[0-9]+)(?:-[0-9a-f]{7,40})?"
)
"""Tags of coreweave/nccl-tests, such as ``12.1.1-cudnn8-devel-ubuntu20.04-nccl2.18.3-1-85f9143``."""


def _tagged(reference: str) -> dict[str, str]:
    """Return the versions in the tag of an nccl-tests image, Slipway's or coreweave's; none for other tags."""
    tag = ImageReference.of(reference).tag
    if match := _TAGGED.fullmatch(tag):
        return match.groupdict()
    try:
        suffix = parse(tag)[1]
    except SlipwayError:
        return {}
    return {name: value for name in ("cuda", "distro", "nccl") if (value := getattr(suffix, name))}


class NcclJobsConfig(FamilyJobsConfig):
    """How many compilers run at once, with those of nccl-tests and of the extras that are for this flavor."""

    nccl_tests: JobCount = Field(None, description="NCCL's tests and the tools that come with them.")
    deepep: JobCount = Field(None, description="DeepEP.")


class Config(FamilyConfig):
    """The keys of an ``nccl`` stack."""

    flavor: Literal["nccl"] = "nccl"
    nccl: Version = Field("2.30.4-1", description="NCCL, with its package revision.")
    nccl_tests: Reference | None = Field(
        None,
        description="A published nccl-tests image to build on, with this CUDA, this distro and a package of this NCCL. "
        "Default: the stack builds its own.",
    )
    hpcx: Annotated[str, AfterValidator(_archive)] | None = Field(
        None,
        description="HPC-X archive below https://content.mellanox.com/hpc/hpc-x. Default: by CUDA and distribution.",
    )

    max_jobs: NcclJobsConfig = Field(
        default_factory=NcclJobsConfig, description="Parallel compilers. Default: as cores and memory allow."
    )

    @field_validator("hpcx")
    @classmethod
    def _used(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("nccl_tests"):
            raise ValueError("hpcx is for the stack's own nccl-tests; the image in ncclTests has its HPC-X already")
        return value

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release, that a table confirms it."""
        yield from super().listed()
        yield partial(check_nccl_listed, self.nccl)

    @model_validator(mode="after")
    def _nccl_of_this_cuda(self) -> Self:
        if self.nccl_tests:
            nccl_release(self.nccl, self.cuda)
            self._check_tag(self.nccl_tests)
            if self.cudnn_release:
                why = "is for the stack's own nccl-tests; the image in ncclTests has its cuDNN already"
                raise Incompatible(
                    "cudnn", self.cudnn_release, why, ("no cudnn", "no ncclTests"), "nccl-builder installs cuDNN"
                )
        else:
            check_nccl_package(self.nccl, self.cuda)
            _ = self.hpcx_archive
        return self

    def _check_tag(self, reference: str) -> None:
        for name, tagged in _tagged(reference).items():
            version = getattr(self, name)
            if tagged != version:
                why = f"is tagged as having {name} {tagged}, and slipway:{name} is {version}"
                source = "the tags of nccl-tests images, Slipway's own and coreweave's"
                raise Incompatible("ncclTests", reference, why, (f"an image of {name} {version}",), source)

    @property
    def warnings(self) -> list[str]:
        """A line if the NCCL is known to fail, or the tables know no package of it or no archive of HPC-X."""
        lines = [*super().warnings, *nccl_warnings(self.nccl, machine=self.machine)]
        if self.nccl_tests:
            return lines
        packaged = nccl_package_warnings(self.nccl, self.cuda, machine=self.machine)
        return [*lines, *packaged, *([] if self.hpcx else hpcx_warnings(self.hpcx_archive))]

    @property
    def hpcx_archive(self) -> str:
        """The archive of HPC-X, below the address of its downloads."""
        return self.hpcx or hpcx_archive(self.cuda, self.distro, machine=self.machine)


_TOOLS = {"gdrcopy": "GDRCopy", "perftest": "perftest", "nvbandwidth": "nvbandwidth", "nccl-tests": "NCCL's tests"}
"""What nccl-tests takes of hpc-tools: the target, and its name in texts."""


def images(config: Config) -> list[ImageSpec]:
    """Return nccl-tests, torch and torch-extras, each on the one before, and what they are made of.

    Wheels are compiled in nccl-builder, on which nccl-tests stands too, so a changed tool compiles no wheel. With a
    published nccl-tests, wheels are compiled in that.
    """
    if config.nccl_tests:
        parent = Outside(reference=config.nccl_tests)
        contents = {"PARENT_CUDA": config.cuda, "PARENT_DISTRO": config.distro, "PARENT_NCCL": config.nccl}
        return family(config, Variant("nccl", builder=parent, base=parent, nccl=config.nccl, parent_args=contents))
    builder, tests = Sibling(image="nccl-builder"), Sibling(image="nccl-tests")
    variant = Variant("nccl", builder=builder, base=tests, nccl=config.nccl)
    hpcx = _build(config, "hpcx", _devel(config), "HPC-X and OpenMPI", HPCX_ARCHIVE=config.hpcx_archive)
    return [hpcx, _builder(config), *_tools(config), _nccl_tests(config), *family(config, variant)]


def _build(config: Config, target: str, parent: Parent, title: str, **args: str) -> ImageSpec:
    return ImageSpec(
        name=f"{target}-build",
        dockerfile="hpc-tools/Dockerfile",
        target=target,
        platform=config.platform,
        product=True,
        args=args,
        tuning=tuning(config.max_jobs, "nccl-tests"),
        parents={"BASE_IMAGE": parent},
        packages=build_tools(config.distro) if target == "nvbandwidth" else None,
        description=title,
        licenses="BSD-3-Clause",
        suffix=suffix(config, "nccl", tail=None),
    )


def _tools(config: Config) -> Iterator[ImageSpec]:
    """Yield the tools, each compiled in the smallest image with the libraries that it is linked with."""
    for target, title in _TOOLS.items():
        parent = Sibling(image="nccl-builder") if target == "nccl-tests" else _devel(config)
        args = {"ARCH_LIST": config.archs} if target in {"nvbandwidth", "nccl-tests"} else {}
        yield _build(config, target, parent, title, **args)


def _devel(config: Config) -> Outside:
    return Outside(reference=config.parent("devel"))


def _builder(config: Config) -> ImageSpec:
    return ImageSpec(
        name="nccl-builder",
        dockerfile="nccl-builder/Dockerfile",
        platform=config.platform,
        product=True,
        args={"NCCL_VERSION": config.nccl, **({"CUDNN_VERSION": config.cudnn_release} if config.cudnn_release else {})},
        parents={"BASE_IMAGE": _devel(config), "HPCX_BUILD_IMAGE": Sibling(image="hpcx-build")},
        description="What wheels with NCCL and HPC-X are compiled in",
        licenses="BSD-3-Clause",
        suffix=suffix(config, "nccl", nccl=config.nccl, tail=None),
    )


def _nccl_tests(config: Config) -> ImageSpec:
    tools = {f"{target.upper().replace('-', '_')}_BUILD_IMAGE": Sibling(image=f"{target}-build") for target in _TOOLS}
    return ImageSpec(
        name="nccl-tests",
        dockerfile="nccl-tests/Dockerfile",
        platform=config.platform,
        parents={"BASE_IMAGE": Sibling(image="nccl-builder"), **tools},
        base_name=_devel(config).reference,
        cuda=Cuda(version=config.cuda),
        compiled=compiled_tools(config.archs),
        description=f"NCCL, HPC-X, OpenMPI and their tests for CUDA {config.cuda}",
        licenses="BSD-3-Clause",
        suffix=suffix(config, "nccl", nccl=config.nccl),
    )
