"""The graph of the torch family: sources -> wheels -> torch -> torch-extras -> serve.

Each long step is a product of its own, which is built once. A changed torchvision compiles no torch. A changed
DeepSpeed compiles only DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stacks.flavors.torch_family.cmake import switches_argument
from stacks.flavors.torch_family.components import (
    Component,
    compiled,
    compiled_tools,
    features,
    libraries,
    pinned,
    source_of,
    titles,
    triton,
    tuning,
    wheel_of,
    wheels,
)
from stacks.flavors.torch_family.family_config import FamilyConfig
from stacks.flavors.torch_family.installed_packages import TorchPackages
from stacks.spec import Cuda, ImageSpec, Parent, Sibling
from stacks.tags import Suffix
from stacks.versions.cuda_toolkit import cuda_release
from stacks.versions.extras import Image, extra_archs, extras, extras_of
from stacks.versions.pytorch import constraints, final_version, torch_release

_PUBLISHED = "https://download.pytorch.org/whl/"


@dataclass(frozen=True)
class Variant:
    """What differs between the variants of the family.

    Attributes:
        name: the first word of its tags.
        builder: the parent in which wheels are compiled.
        base: the parent of torch.
        nccl: the system's NCCL, where the tags name one.
        slim: whether the images have no compiler.
        builder_args: further arguments of wheels, for what their builder lacks.
        parent_args: arguments for the build's check of a published parent against its tag.
    """

    name: str
    builder: Parent
    base: Parent
    nccl: str | None = None
    slim: bool = False
    builder_args: Mapping[str, str] = field(default_factory=dict)
    parent_args: Mapping[str, str] = field(default_factory=dict)

    @property
    def compiler_args(self) -> dict[str, str]:
        """The argument that leaves the compiler out."""
        return {"SLIM": "true"} if self.slim else {}


def images(config: FamilyConfig, variant: Variant) -> list[ImageSpec]:
    """Return torch, torch-extras, serve and the products that they are made of."""
    in_torch, in_extras = [*_built(config), *_extras(config, "torch")], _extras(config, "torch-extras")
    specs = [*_products(config, variant, in_torch), _torch(config, variant, in_torch)]
    if in_extras:
        specs += [*_products(config, variant, in_extras), _torch_extras(config, variant, in_extras)]
    if config.serve:
        specs.append(_serve(config, variant, config.serve.vllm, specs[-1]))
    return specs


def suffix(config: FamilyConfig, variant: str, **fields: str | None) -> Suffix:
    """Return the tag's suffix of one of a stack's images, with the optional fields that the stack chooses."""
    distro = config.distro if "distro" in config.tag_fields else None
    return Suffix(variant=variant, cuda=config.cuda, distro=distro, **{"tail": config.tag_suffix, **fields})


def _built(config: FamilyConfig) -> list[Component]:
    return config.torch.components if config.torch.source == "build" else []


def _system_code(config: FamilyConfig, variant: Variant) -> dict[str, str]:
    """Return what the stack compiled for GPUs of the image below torch."""
    return compiled_tools(config.archs) if isinstance(variant.base, Sibling) else {}


def _extras(config: FamilyConfig, image: Image) -> list[Component]:
    return pinned({extra.name: config.pin(extra) for extra in extras_of(image)})


def _packages(config: FamilyConfig) -> TorchPackages:
    return TorchPackages(
        distro=config.distro,
        python=config.python_version,
        machine=config.machine,
        versions=config.torch.versions,
        built=_built(config),
        cuda=config.cuda,
        index=_index(config).get("TORCH_INDEX_URL"),
    )


def _products(config: FamilyConfig, variant: Variant, components: Iterable[Component]) -> Iterator[ImageSpec]:
    """Yield the source and the wheel of each component."""
    torch = config.torch.version
    built = config.torch.components[0] if config.torch.source == "build" else None
    marched = {extra.name for extra in extras().values() if extra.march}
    for component in components:
        yield source_of(component)
        itself = component.name == "torch"
        yield wheel_of(
            component,
            config.platform,
            builder=variant.builder,
            torch=None if itself else built,
            args={
                "PYTHON": f"python{config.python_version}",
                "CONSTRAINTS": constraints(torch),
                "ARCH_LIST": extra_archs(component.name, component.pin, config.archs),
                **(_torch_args(config, variant) if itself else {}),
                **({} if itself else {"TORCH_VERSION": torch, **_index(config)}),
                **({"MARCH": config.processor} if component.name in marched else {}),
                **variant.parent_args,
                **variant.builder_args,
            },
            tuning=tuning(config.max_jobs, component.name, config.compiler_cache),
            packages=_packages(config).compiling(component),
            suffix=suffix(config, variant.name, **{"nccl": variant.nccl, "torch": torch, **component.fields}),
        )


def _torch_args(config: FamilyConfig, variant: Variant) -> dict[str, str]:
    """Return what torch alone is built with."""
    torch = config.torch.version
    return {
        "VARIANT": variant.name,
        **triton(torch, config.torch.commits.torch, config.machine),
        **libraries(torch, config.cuda),
        **({"MAGMA_ARCHIVE": config.magma_archive} if config.magma_archive else {}),
        **switches_argument(config.cmake),
    }


def _torch(config: FamilyConfig, variant: Variant, components: Sequence[Component]) -> ImageSpec:
    versions, cuda = config.torch.versions, Cuda(version=config.cuda)
    return ImageSpec(
        name="torch",
        dockerfile="torch/Dockerfile",
        target="final",
        platform=config.platform,
        args={
            "TORCH_VERSION": versions["torch"],
            "TORCHVISION_VERSION": versions["vision"],
            "TORCHAUDIO_VERSION": versions.get("audio", ""),
            "CONSTRAINTS": constraints(versions["torch"]),
            "PYTHON": f"python{config.python_version}",
            "VARIANT": variant.name,
            "ARCH_LIST": config.archs,
            "REQUIRE_CUDA": cuda.requirement,
            **_index(config),
            **_features(config),
            **variant.parent_args,
            **variant.compiler_args,
        },
        parents={"BASE_IMAGE": variant.base, **wheels(components)},
        packages=_packages(config).installed(_extras(config, "torch")),
        cuda=cuda,
        compiled={**_system_code(config, variant), **compiled(components, config.archs)},
        description=f"{titles([*config.torch.components, *_extras(config, 'torch')])} for CUDA {config.cuda}",
        licenses="BSD-3-Clause",
        suffix=_final_suffix(config, variant),
    )


def _torch_extras(config: FamilyConfig, variant: Variant, components: Sequence[Component]) -> ImageSpec:
    return ImageSpec(
        name="torch-extras",
        dockerfile="torch-extras/Dockerfile",
        target="final",
        platform=config.platform,
        args={"VARIANT": variant.name, **variant.compiler_args},
        parents={"BASE_IMAGE": Sibling(image="torch"), **wheels(components)},
        packages=_packages(config).installed([*_extras(config, "torch"), *components]),
        cuda=Cuda(version=config.cuda),
        compiled={
            **_system_code(config, variant),
            **compiled([*_built(config), *_extras(config, "torch"), *components], config.archs),
        },
        description=f"{titles(components)} on PyTorch",
        licenses="Apache-2.0 AND BSD-3-Clause",
        suffix=_final_suffix(config, variant),
    )


def _serve(config: FamilyConfig, variant: Variant, vllm: str, parent: ImageSpec) -> ImageSpec:
    return ImageSpec(
        name="serve",
        dockerfile="serve/Dockerfile",
        target="final",
        platform=config.platform,
        args={"VLLM_VERSION": vllm},
        parents={"BASE_IMAGE": Sibling(image=parent.name)},
        packages=parent.packages and parent.packages.with_more(f"vllm=={vllm}", constraints=["cuda-python>=12.8"]),
        cuda=parent.cuda,
        compiled=parent.compiled,
        description=f"vLLM on PyTorch for CUDA {config.cuda}",
        licenses="Apache-2.0 AND BSD-3-Clause",
        suffix=_final_suffix(config, variant, vllm=vllm),
    )


def _final_suffix(config: FamilyConfig, variant: Variant, **fields: str) -> Suffix:
    abi = config.abi if "abi" in config.tag_fields else None
    return suffix(config, variant.name, nccl=variant.nccl, abi=abi, **config.torch.versions, **fields)


def _features(config: FamilyConfig) -> dict[str, str]:
    """Return what torch must have; of a wheel for another CUDA than the Python index's, nothing was read."""
    if config.torch.source == "build":
        return features(config.torch.version, config.machine, without=config.without, switches=config.cmake)
    return {} if _index(config) else features(config.torch.version, config.machine)


def _index(config: FamilyConfig) -> dict[str, str]:
    """Return the index of wheels for this CUDA as an argument, if the Python index has wheels for another CUDA."""
    release, toolkit = torch_release(config.torch.version), cuda_release(config.cuda)
    listed = release.cuda if config.machine == "amd64" else release.cuda_arm64
    known = release.row == final_version(release.version)
    if config.torch.source == "build" or (known and listed == toolkit.line):
        return {}
    return {"TORCH_INDEX_URL": _PUBLISHED + toolkit.wheels}
