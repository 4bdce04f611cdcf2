"""The graph of a ``universal`` stack: sources -> wheels -> dist -> images to train in.

The wheels are compiled in one image of compilers, ``install``.
"""

from __future__ import annotations

from collections.abc import Iterator

from stacks.flavors.torch_family.cmake import switches_argument
from stacks.flavors.torch_family.components import (
    FETCHER,
    compiled,
    features,
    libraries,
    source_of,
    titles,
    triton,
    tuning,
    wheel_of,
    wheels,
)
from stacks.flavors.torch_family.installed_packages import MKL, TorchPackages, build_tools
from stacks.flavors.universal.train import TrainConfig
from stacks.flavors.universal.universal_config import Config
from stacks.jobs.requirements import Requirements, Workspace
from stacks.spec import Cuda, ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from stacks.versions.pytorch import constraints

_WITHOUT_CUDA = {"text"}
"""Components that have no code for a GPU."""


def images(config: Config) -> list[ImageSpec]:
    """Return the image of compilers, the products that are compiled in it, and the images to train in."""
    return [_install(config), *_products(config), _dist(config), *(_train(config, train) for train in config.train)]


def requirements(config: Config) -> Requirements:
    """Return the user and the project folder of each train image, and whether there is CUDA.

    The environment of a train image belongs to the group ``conda``, whose id differs by image. So the group is given by
    name: an engine looks names up in the image's /etc/group. It reads a user's own groups only if the container names
    no group (moby, daemon/oci_linux.go and github.com/moby/sys/user).
    """
    return Requirements(
        no_gpu=None if config.cuda else "slipway:cuda: 'false'",
        workspaces={
            train.image: Workspace(folder=config.project_root, uid=train.uid, groups=("conda",))
            for train in config.train
        },
    )


def _suffix(config: Config, **fields: str | None) -> Suffix:
    cuda = config.cuda or None
    return Suffix(variant="universal", cuda=cuda, distro=config.distro, **{"tail": config.tag_suffix, **fields})


def _cache_args(config: Config) -> dict[str, str]:
    return {"CLEAN": config.cache_key} if config.cache_key else {}


def _install(config: Config) -> ImageSpec:
    magma = config.magma_package
    return ImageSpec(
        name="install",
        dockerfile="universal-install/Dockerfile",
        platform=config.platform,
        product=True,
        args={
            **config.micromamba_args,
            "PYTHON_VERSION": config.python,
            "CONSTRAINTS": constraints(config.torch.version),
            **({"MAGMA_PACKAGE": magma.package, "MAGMA_ARCHIVE": magma.archive or ""} if magma else {}),
            **_cache_args(config),
        },
        parents={"BASE_IMAGE": Outside(reference=config.parent("devel"))},
        packages=build_tools(
            config.distro, config.python, MKL if config.machine == "amd64" else (), config.torch.version
        ),
        description="Compilers and libraries to build PyTorch with",
        licenses="BSD-3-Clause",
        suffix=_suffix(config),
    )


def _products(config: Config) -> Iterator[ImageSpec]:
    """Yield the source and the wheel of each component."""
    torch = config.torch.components[0]
    for component in config.torch.components:
        yield source_of(component, **_cache_args(config))
        yield wheel_of(
            component,
            config.platform,
            builder=Sibling(image="install"),
            torch=None if component == torch else torch,
            args={
                "ARCH_LIST": "" if component.name in _WITHOUT_CUDA else config.archs,
                **(_torch_args(config) if component == torch else {"TORCH_VERSION": config.torch.version}),
                **_cache_args(config),
            },
            tuning=tuning(config.max_jobs, component.name, config.compiler_cache),
            packages=_packages(config).compiling(component),
            suffix=_suffix(config, **{"torch": config.torch.version, **component.fields}),
        )


def _torch_args(config: Config) -> dict[str, str]:
    """Return what torch is built with: Triton and NVIDIA's libraries for GPUs alone."""
    torch = config.torch.version
    common = {"VARIANT": "universal", **switches_argument(config.cmake)}
    if not config.cuda:
        return {**common, "TRITON_VERSION": "none"}
    return {**common, **triton(torch, config.torch.commits.torch, config.machine), **libraries(torch, config.cuda)}


def _packages(config: Config) -> TorchPackages:
    return TorchPackages(
        distro=config.distro,
        python=config.python,
        machine=config.machine,
        versions=config.torch.versions,
        built=config.torch.components,
        cuda=config.cuda or "",
    )


def _dist(config: Config) -> ImageSpec:
    components = config.torch.components
    return ImageSpec(
        name="dist",
        dockerfile="universal/Dockerfile",
        target="dist",
        platform=config.platform,
        product=True,
        args=_cache_args(config),
        parents={"BASE_IMAGE": FETCHER, **wheels(components)},
        description=f"Wheels of {titles(components)}",
        licenses="BSD-3-Clause",
        suffix=_suffix(config, torch=config.torch.version),
    )


def _train(config: Config, train: TrainConfig) -> ImageSpec:
    versions = config.torch.versions
    cuda = f"CUDA {config.cuda}" if config.cuda else "the CPU"
    variables = {
        f"ENV_{number}_{part}": text
        for number, pair in enumerate(sorted(train.env.items()), start=1)
        for part, text in zip(("NAME", "VALUE"), pair, strict=True)
    }
    packages = {"CONDA_PACKAGES": train.conda, "SYSTEM_PACKAGES": train.apt or train.dnf, "PIP_PACKAGES": train.pip}
    return ImageSpec(
        name=train.image,
        dockerfile="universal/Dockerfile",
        target="train",
        platform=config.platform,
        args={
            **config.micromamba_args,
            "PYTHON_VERSION": config.python,
            "CONSTRAINTS": constraints(versions["torch"]),
            "TORCH_VERSION": versions["torch"],
            "TORCHVISION_VERSION": versions["vision"],
            "TORCHAUDIO_VERSION": versions.get("audio", ""),
            "TORCHTEXT_VERSION": versions.get("text", ""),
            "ARCH_LIST": config.archs,
            **features(
                versions["torch"], config.machine, cuda=bool(config.cuda), without=config.without, switches=config.cmake
            ),
            **{name: "\n".join(names) for name, names in packages.items() if names},
            "USER_ID": str(train.uid),
            "GROUP_ID": str(train.group),
            "PROJECT_ROOT": config.project_root,
            "TZ": train.tz,
            **variables,
            **_cache_args(config),
        },
        parents={
            "BASE_IMAGE": Outside(reference=config.parent(config.train_image)),
            "DIST_IMAGE": Sibling(image="dist"),
        },
        packages=None if any("://" in line for line in train.pip) else _packages(config).installed(more=train.pip),
        cuda=Cuda(version=config.cuda) if config.cuda else None,
        compiled=compiled(config.torch.components, config.archs),
        description=f"{titles(config.torch.components)} from source for {cuda}, to train with",
        licenses="BSD-3-Clause",
        suffix=_suffix(config, **{name: version for name, version in versions.items() if name != "text"}),
    )
