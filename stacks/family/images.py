"""The graph of the torch family: sources -> wheels -> torch -> the extras' wheels -> torch-extras.

Everything that takes long is a product of its own, so that it is built once: a changed torchvision compiles no torch,
and a changed DeepSpeed nothing but DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stacks.config import Model
from stacks.family.config import Extras, FamilyConfig, is_commit
from stacks.spec import ImageSpec, Outside, Parent, Sibling
from stacks.tags import Suffix
from stacks.versions import cuda, torch_release

_TORCH = "torch/Dockerfile"
_EXTRAS = "torch-extras/Dockerfile"

FETCHER = Outside(reference="debian:bookworm-slim")
"""Parent of the sources: any that has git in its archive. One for all stacks, so that each source is fetched once."""

_WHEELS = "https://download.pytorch.org/whl/"

_TITLES = {
    "torch": "PyTorch",
    "vision": "torchvision",
    "audio": "torchaudio",
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
    of torch, and ``nccl`` the system's NCCL where it has one.
    """

    name: str
    builder: Parent
    base: Parent
    nccl: str | None = None


def images(config: FamilyConfig, variant: Variant) -> list[ImageSpec]:
    """Return torch, torch-extras and all that they are made of."""
    return list(_Chain(config, variant).specs())


def suffix(config: FamilyConfig, variant: str, **fields: str | None) -> Suffix:
    """Return the tag's suffix of one of a stack's images, with the optional fields that the stack asks for."""
    return Suffix(
        variant=variant,
        cuda=config.cuda,
        distro=config.distro if "distro" in config.tag_fields else None,
        **{"tail": config.tag_suffix, **fields},
    )


def tuning(config: FamilyConfig, component: str) -> dict[str, str]:
    """Return a component's number of parallel jobs as an argument, where the stack sets one."""
    jobs = config.max_jobs.of(component)
    return {"MAX_JOBS": str(jobs)} if jobs else {}


class _Chain:
    def __init__(self, config: FamilyConfig, variant: Variant) -> None:
        self.config = config
        self.variant = variant
        torch = config.torch
        versions = {"torch": torch.version, "vision": torch.companion("vision"), "audio": torch.companion("audio")}
        self.versions = {component: version for component, version in versions.items() if version}
        self.built = torch.source == "build"
        self.switches = _on(config, "transformer_engine", "flash_attention3")
        self.extras = _on(config.extras, *Extras.model_fields)

    def specs(self) -> Iterator[ImageSpec]:
        if self.built:
            for component, version in self.versions.items():
                yield self._source(component, version)
                yield self._torch_wheel(component, version)
        for component, pin in self.switches.items():
            yield self._switch_wheel(component, pin)
        yield self._torch()
        if self.extras:
            for component, pin in self.extras.items():
                yield self._extra_wheel(component, pin)
            yield self._torch_extras()

    def _source(self, component: str, version: str) -> ImageSpec:
        commit: str | None = getattr(self.config.torch.commits, component)
        return ImageSpec(
            name=f"{component}-source",
            dockerfile=_TORCH,
            target="source",
            platform=self.config.platform,
            product=True,
            args={"COMPONENT": component, "VERSION": version, **({"COMMIT": commit} if commit else {})},
            parents={"BASE_IMAGE": FETCHER},
            description=f"Sources of {_TITLES[component]}",
            licenses="BSD-3-Clause",
            suffix=Suffix(variant="source", **{component: version}),
        )

    def _wheel(
        self, component: str, args: Mapping[str, str], dockerfile: str, parents: Mapping[str, Parent], tail: str | None
    ) -> ImageSpec:
        versions = {name: self.versions[name] for name in {"torch", component} & set(self.versions)}
        return ImageSpec(
            name=f"{component}-wheel",
            dockerfile=dockerfile,
            target="wheel",
            platform=self.config.platform,
            product=True,
            args={"COMPONENT": component, **args, **self._toolchain},
            tuning=tuning(self.config, component),
            parents={"BUILDER_IMAGE": self.variant.builder, **parents},
            description=f"Wheel of {_TITLES[component]}",
            licenses="BSD-3-Clause",
            suffix=suffix(self.config, self.variant.name, nccl=self.variant.nccl, tail=tail, **versions),
        )

    def _torch_wheel(self, component: str, version: str) -> ImageSpec:
        parents: dict[str, Parent] = {"SOURCE_IMAGE": Sibling(image=f"{component}-source")}
        if component != "torch":
            parents["TORCH_WHEEL_IMAGE"] = Sibling(image="torch-wheel")
        abi = {"CXX11_ABI": self.config.abi} if component == "torch" else {}
        return self._wheel(component, {"VERSION": version, **abi}, _TORCH, parents, None)

    def _switch_wheel(self, component: str, pin: str) -> ImageSpec:
        parents: dict[str, Parent] = {"TORCH_WHEEL_IMAGE": Sibling(image="torch-wheel")} if self.built else {}
        args = {**_pin(pin), "TORCH_VERSION": self.versions["torch"], **self._torch_index}
        return self._wheel(component, args, _TORCH, parents, _tail(pin))

    def _extra_wheel(self, component: str, pin: str) -> ImageSpec:
        return self._wheel(component, _pin(pin), _EXTRAS, {"TORCH_IMAGE": Sibling(image="torch")}, _tail(pin))

    def _torch(self) -> ImageSpec:
        wheels = [*(self.versions if self.built else ()), *self.switches]
        contents = [_TITLES[component] for component in (*self.versions, *self.switches)]
        return ImageSpec(
            name="torch",
            dockerfile=_TORCH,
            target="final",
            platform=self.config.platform,
            args={
                "TORCH_VERSION": self.versions["torch"],
                "TORCHVISION_VERSION": self.versions["vision"],
                "TORCHAUDIO_VERSION": self.versions.get("audio", ""),
                "CXX11_ABI": self.config.abi,
                **self._toolchain,
                **self._torch_index,
            },
            parents={"BASE_IMAGE": self.variant.base, **_wheel_parents(wheels)},
            description=f"{_listed(contents)} for CUDA {self.config.cuda}",
            licenses="BSD-3-Clause",
            suffix=self._suffix,
        )

    def _torch_extras(self) -> ImageSpec:
        return ImageSpec(
            name="torch-extras",
            dockerfile=_EXTRAS,
            target="final",
            platform=self.config.platform,
            args={f"{_prefix(component)}_VERSION": pin for component, pin in self.extras.items()},
            parents={"BASE_IMAGE": Sibling(image="torch"), **_wheel_parents(self.extras)},
            description=f"{_listed([_TITLES[component] for component in self.extras])} on PyTorch",
            licenses="Apache-2.0 AND BSD-3-Clause",
            suffix=self._suffix,
        )

    @property
    def _suffix(self) -> Suffix:
        abi = self.config.abi if "abi" in self.config.tag_fields else None
        return suffix(self.config, self.variant.name, nccl=self.variant.nccl, abi=abi, **self.versions)

    @property
    def _toolchain(self) -> dict[str, str]:
        return {
            "PYTHON_VERSION": self.config.python_version,
            "TORCH_CUDA_ARCH_LIST": self.config.archs,
        }

    @property
    def _torch_index(self) -> dict[str, str]:
        """The index of published wheels for this CUDA, where the Python index has another's."""
        release, toolkit = torch_release(self.versions["torch"]), cuda(self.config.cuda)
        on_index = release.cuda if self.config.machine == "amd64" else release.cuda_arm64
        return {} if self.built or on_index == toolkit.line else {"TORCH_INDEX_URL": _WHEELS + toolkit.wheels}


def _on(config: Model, *fields: str) -> dict[str, str]:
    """Return the fields' components that are switched on, with their pins."""
    return {field.replace("_", "-"): getattr(config, field) for field in fields if getattr(config, field)}


def _pin(pin: str) -> dict[str, str]:
    return {"COMMIT" if is_commit(pin) else "VERSION": pin}


def _tail(pin: str) -> str:
    """Return a pin as the last part of a product's tag, which no field of the grammar names: v0.9.4 or g38a1269."""
    return f"g{pin[:7]}" if is_commit(pin) else "v" + pin.replace("-", ".")


def _prefix(component: str) -> str:
    return component.upper().replace("-", "_")


def _wheel_parents(components: list[str] | Mapping[str, str]) -> dict[str, Parent]:
    return {f"{_prefix(component)}_WHEEL_IMAGE": Sibling(image=f"{component}-wheel") for component in components}


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
