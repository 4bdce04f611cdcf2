"""The graph of the torch family: sources -> wheels -> torch -> torch-extras.

Everything that takes long is a product of its own, so that it is built once: a changed torchvision compiles no torch,
and a changed DeepSpeed nothing but DeepSpeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stacks.config.model import Model
from stacks.flavors.torch_family.config import Extras, FamilyConfig, MaxJobs, is_commit
from stacks.spec import Branch, ImageSpec, Outside, Parent, Sibling
from stacks.tags import Suffix
from stacks.versions.cuda_toolkit import cuda_release
from stacks.versions.pytorch import constraints, torch_release
from stacks.versions.torch_libraries import extra_archs

FETCHER = Outside(reference="debian:bookworm-slim")
"""Parent of the sources: any that has git in its archive. One for all stacks, so that each source is fetched once."""

_PUBLISHED = "https://download.pytorch.org/whl/"

_TITLES = {
    "torch": "PyTorch",
    "vision": "torchvision",
    "audio": "torchaudio",
    "text": "torchtext",
    "transformer-engine": "TransformerEngine",
    "flash-attention3": "FlashAttention 3",
    "deepspeed": "DeepSpeed",
    "flash-attention": "FlashAttention",
    "apex": "NVIDIA Apex",
    "xformers": "xformers",
}


@dataclass(frozen=True)
class Variant:
    """What tells one variant of the family from another.

    ``name`` is the first word of its tags, ``builder`` the parent in which wheels are compiled, ``base`` the parent
    of torch, and ``nccl`` the system's NCCL where its tags name one. ``promised`` are arguments by which a build sees
    that a parent that others publish has what the tags say.
    """

    name: str
    builder: Parent
    base: Parent
    nccl: str | None = None
    promised: Mapping[str, str] = field(default_factory=dict)


def images(config: FamilyConfig, variant: Variant) -> list[ImageSpec]:
    """Return torch, torch-extras and all that they are made of."""
    return list(_Chain(config, variant).specs())


def suffix(config: FamilyConfig, variant: str, **fields: str | None) -> Suffix:
    """Return the tag's suffix of one of a stack's images, with the optional fields that the stack asks for."""
    distro = config.distro if "distro" in config.tag_fields else None
    return Suffix(variant=variant, cuda=config.cuda, distro=distro, **{"tail": config.tag_suffix, **fields})


def tuning(most: MaxJobs, component: str) -> dict[str, str]:
    """Return a component's number of parallel jobs as an argument, where the stack sets one."""
    jobs = most.of(component)
    return {"MAX_JOBS": str(jobs)} if jobs else {}


def triton(torch: str, commit: str | None) -> dict[str, str]:
    """Return the Triton that a torch is built for as an argument: at the release's own pin, none before 2.0.

    Where the release leaves a choice, and at a commit, there is none: torch's source says which.
    """
    release = torch_release(torch)
    if not release.triton:
        return {"TRITON_VERSION": "none"}
    pin = None if commit else release.triton_pin
    return {"TRITON_VERSION": pin} if pin else {}


@dataclass(frozen=True)
class Component:
    """One source and the wheel made of it, at a version, and at a commit or the one that the lock has of a branch."""

    name: str
    version: str | None
    commit: str | None
    branch: Branch | None = None

    @property
    def title(self) -> str:
        """Its name as people write it."""
        return _TITLES[self.name]

    @property
    def pin(self) -> str:
        """What is known of its version: that, else its commit."""
        return self.version or self.commit or ""

    @property
    def prefix(self) -> str:
        """What the arguments that are about it begin with."""
        return self.name.upper().replace("-", "_")

    @property
    def args(self) -> dict[str, str]:
        """What says which component it is, and at which version, to its source's build and its wheel's."""
        return {"COMPONENT": self.name, **({"VERSION": self.version} if self.version else {})}

    @property
    def fields(self) -> dict[str, str | None]:
        """What names it in its products' tags: a field of the grammar that has one, else a tail, v0.9.4 or g38a1269."""
        own = {self.name: self.version} if self.name in Suffix.model_fields else {}
        # A tail has no '-', as 0.18.0-rc1 has.
        tail = f"g{self.commit[:7]}" if self.commit else None if own else f"v{self.version}".replace("-", "_")
        if self.branch:
            tail = "b_" + re.sub(r"[^A-Za-z0-9_.]", "_", self.branch.name)
        return {**own, "tail": tail}


def source_of(component: Component, platform: str, **args: str) -> ImageSpec:
    """Return the image of a component's source; ``args`` are further build arguments."""
    return ImageSpec(
        name=f"{component.name}-source",
        dockerfile="wheels/Dockerfile",
        target="source",
        platform=platform,
        product=True,
        args={**component.args, **({"COMMIT": component.commit} if component.commit else {}), **args},
        parents={"BASE_IMAGE": FETCHER},
        branches={"COMMIT": component.branch} if component.branch else {},
        description=f"Source of {component.title}",
        licenses="BSD-3-Clause",
        suffix=Suffix.model_validate({"variant": "source", **component.fields}),
    )


class _Chain:
    def __init__(self, config: FamilyConfig, variant: Variant) -> None:
        self.config = config
        self.variant = variant
        torch = config.torch
        versions = {"torch": torch.version, "vision": torch.companion("vision"), "audio": torch.companion("audio")}
        self.versions = {name: version for name, version in versions.items() if version}
        self.torch = [Component(name, self.versions[name], getattr(torch.commits, name)) for name in self.versions]
        self.built = torch.source == "build"
        self.switches = _on(config, "transformer_engine", "flash_attention3")
        self.extras = _on(config.extras, *Extras.model_fields)

    def specs(self) -> Iterator[ImageSpec]:
        for component in [*(self.torch if self.built else ()), *self.switches]:
            yield from self._products(component)
        yield self._torch()
        if self.extras:
            for component in self.extras:
                yield from self._products(component)
            yield self._torch_extras()

    def _products(self, component: Component) -> Iterator[ImageSpec]:
        source = source_of(component, self.config.platform)
        yield source
        fields = {"nccl": self.variant.nccl, "torch": self.versions["torch"], **component.fields}
        yield ImageSpec(
            name=f"{component.name}-wheel",
            dockerfile="wheels/Dockerfile",
            target="wheel",
            platform=self.config.platform,
            product=True,
            args={
                **component.args,
                "PYTHON": f"python{self.config.python_version}",
                "CONSTRAINTS": constraints(self.versions["torch"]),
                "ARCH_LIST": extra_archs(component.name, component.pin, self.config.archs),
                **(self._torch_itself if component.name == "torch" else self._torch_to_build_on),
                **self.variant.promised,
            },
            tuning={**tuning(self.config.max_jobs, component.name), **self._cache},
            parents={
                "BASE_IMAGE": self.variant.builder,
                "SOURCE_IMAGE": Sibling(image=source.name),
                **(wheels(self.torch[:1]) if self.built and component.name != "torch" else {}),
            },
            description=f"Wheel of {component.title}",
            licenses="BSD-3-Clause",
            suffix=suffix(self.config, self.variant.name, **fields),
        )

    def _torch(self) -> ImageSpec:
        return ImageSpec(
            name="torch",
            dockerfile="torch/Dockerfile",
            target="final",
            platform=self.config.platform,
            args={
                "TORCH_VERSION": self.versions["torch"],
                "TORCHVISION_VERSION": self.versions["vision"],
                "TORCHAUDIO_VERSION": self.versions.get("audio", ""),
                "CONSTRAINTS": constraints(self.versions["torch"]),
                "PYTHON": f"python{self.config.python_version}",
                "VARIANT": self.variant.name,
                "ARCH_LIST": self.config.archs,
                **self._index,
                **self.variant.promised,
            },
            parents={
                "BASE_IMAGE": self.variant.base,
                **wheels([*(self.torch if self.built else ()), *self.switches]),
            },
            description=f"{titles([*self.torch, *self.switches])} for CUDA {self.config.cuda}",
            licenses="BSD-3-Clause",
            suffix=self._suffix,
        )

    def _torch_extras(self) -> ImageSpec:
        return ImageSpec(
            name="torch-extras",
            dockerfile="torch-extras/Dockerfile",
            target="final",
            platform=self.config.platform,
            args={"VARIANT": self.variant.name},
            parents={"BASE_IMAGE": Sibling(image="torch"), **wheels(self.extras)},
            description=f"{titles(self.extras)} on PyTorch",
            licenses="Apache-2.0 AND BSD-3-Clause",
            suffix=self._suffix,
        )

    @property
    def _suffix(self) -> Suffix:
        abi = self.config.abi if "abi" in self.config.tag_fields else None
        return suffix(self.config, self.variant.name, nccl=self.variant.nccl, abi=abi, **self.versions)

    @property
    def _torch_itself(self) -> dict[str, str]:
        """What torch is built with."""
        return {"VARIANT": self.variant.name, **triton(self.versions["torch"], self.config.torch.commits.torch)}

    @property
    def _torch_to_build_on(self) -> dict[str, str]:
        return {"TORCH_VERSION": self.versions["torch"], **self._index}

    @property
    def _cache(self) -> dict[str, str]:
        return {"CCACHE_REMOTE": self.config.compiler_cache} if self.config.compiler_cache else {}

    @property
    def _index(self) -> dict[str, str]:
        """The index of published wheels for this CUDA, where the Python index has another's."""
        release, toolkit = torch_release(self.versions["torch"]), cuda_release(self.config.cuda)
        listed = release.cuda if self.config.machine == "amd64" else release.cuda_arm64
        return {} if self.built or listed == toolkit.line else {"TORCH_INDEX_URL": _PUBLISHED + toolkit.wheels}


def _on(config: Model, *fields: str) -> list[Component]:
    """Return the components of the fields that are switched on, at their pins."""
    pins = {field.replace("_", "-"): getattr(config, field) for field in fields if getattr(config, field)}
    return [
        Component(name, version=None if is_commit(pin) else pin, commit=pin if is_commit(pin) else None)
        for name, pin in pins.items()
    ]


def wheels(components: Iterable[Component]) -> dict[str, Parent]:
    """Return the parents by which a Dockerfile takes the components' wheels."""
    return {f"{part.prefix}_WHEEL_IMAGE": Sibling(image=f"{part.name}-wheel") for part in components}


def titles(components: Iterable[Component]) -> str:
    """Return the components' names as a list in a sentence."""
    *most, last = (component.title for component in components)
    return f"{', '.join(most)} and {last}" if most else last
