"""What PyTorch images are built from: a component's source and its wheel, each an image that others mount."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stacks.config.model import Model
from stacks.config.values import is_commit
from stacks.flavors.torch_family.cmake import switched_features
from stacks.flavors.torch_family.max_jobs import MaxJobsConfig
from stacks.spec import Branch, ImageSpec, Outside, Packages, Parent, Sibling
from stacks.tags import Suffix
from stacks.versions.cuda_toolkit import Machine
from stacks.versions.extras import extra_archs, extras
from stacks.versions.pytorch import built_libraries, missing_triton, published_features, torch_release

FETCHER = Outside(reference="debian:bookworm-slim")
"""Parent of the sources: it only needs git. All stacks share it, so that each source is fetched once."""

_ANY_MACHINE = "linux/amd64"
"""Platform of the sources, which are the same for every machine; the engine fetches them on its own platform."""

_TITLES = {"torch": "PyTorch", "vision": "torchvision", "audio": "torchaudio", "text": "torchtext"}

_DISTRIBUTIONS = {**_TITLES, "torch": "torch"}


@dataclass(frozen=True)
class Component:
    """A source and the wheel made of it: at a version, or at a commit or branch that the lock pins."""

    name: str
    version: str | None
    commit: str | None
    branch: Branch | None = None

    @property
    def title(self) -> str:
        """Its name in texts."""
        return _TITLES.get(self.name) or extras()[self.name].title

    @property
    def distribution(self) -> str:
        """The name of the Python package that its wheel is."""
        return _DISTRIBUTIONS.get(self.name) or extras()[self.name].distribution

    @property
    def pin(self) -> str:
        """Its version if it is known, else its commit."""
        return self.version or self.commit or ""

    @property
    def prefix(self) -> str:
        """The first part of the names of its build arguments."""
        return self.name.upper().replace("-", "_")

    @property
    def args(self) -> dict[str, str]:
        """The build arguments that name it and its version, for its source and its wheel."""
        return {"COMPONENT": self.name, **({"VERSION": self.version} if self.version else {})}

    @property
    def fields(self) -> dict[str, str | None]:
        """The fields of its products' tags: the grammar's field with its name, else a tail, v0.9.4 or g38a1269."""
        field = {self.name: self.version} if self.name in Suffix.model_fields else {}
        # A tail cannot have the '-' of 0.18.0-rc1.
        tail = f"g{self.commit[:7]}" if self.commit else None if field else f"v{self.version}".replace("-", "_")
        if self.branch:
            tail = "b_" + re.sub(r"[^A-Za-z0-9_.]", "_", self.branch.name)
        return {**field, "tail": tail}


def compiled(components: Iterable[Component], archs: str) -> dict[str, str]:
    """Return the Python packages of components with the compute capabilities that they have code for.

    A component without code for GPUs, such as torchtext, is none.
    """
    listed = {part.distribution: extra_archs(part.name, part.pin, archs) for part in components if part.name != "text"}
    return {distribution: has for distribution, has in listed.items() if has}


def compiled_tools(archs: str) -> dict[str, str]:
    """Return the paths of the tools in nccl-tests that run on GPUs, with their compute capabilities."""
    return dict.fromkeys(("/opt/nccl-tests/*", "/usr/bin/nvbandwidth"), archs)


def torch_components(versions: Mapping[str, str], commits: Model) -> list[Component]:
    """Return torch and its companions at their versions, each with its commit or branch in ``commits``."""
    components = []
    for name, version in versions.items():
        ref: str | None = getattr(commits, name)
        if ref is None or is_commit(ref):
            components.append(Component(name, version, ref))
        else:
            repository = "pytorch/pytorch" if name == "torch" else f"pytorch/{name}"
            components.append(Component(name, version, None, Branch(repository=repository, name=ref)))
    return components


def pinned(pins: Mapping[str, str | Literal[False]]) -> list[Component]:
    """Return the components that are not switched off, each at its pin: a version or a commit."""
    return [
        Component(name, None if is_commit(pin) else pin, pin if is_commit(pin) else None)
        for name, pin in pins.items()
        if pin
    ]


def source_of(component: Component, **args: str) -> ImageSpec:
    """Return the image of a component's source, one for all platforms; ``args`` are further build arguments."""
    return ImageSpec(
        name=f"{component.name}-source",
        dockerfile="wheels/Dockerfile",
        target="source",
        platform=_ANY_MACHINE,
        product=True,
        args={**component.args, **({"COMMIT": component.commit} if component.commit else {}), **args},
        parents={"BASE_IMAGE": FETCHER},
        branches={"COMMIT": component.branch} if component.branch else {},
        description=f"Source of {component.title}",
        licenses="BSD-3-Clause",
        suffix=Suffix.model_validate({"variant": "source", **component.fields}),
    )


def wheel_of(
    component: Component,
    platform: str,
    *,
    builder: Parent,
    torch: Component | None,
    args: Mapping[str, str],
    tuning: Mapping[str, str],
    packages: Packages | None,
    suffix: Suffix,
) -> ImageSpec:
    """Return the image of a component's wheel.

    ``builder`` is the parent in which it is compiled, against ``torch``; that is None for a published torch, and for
    torch itself. ``args`` are build arguments besides those that name it and its version; those in ``tuning`` change
    nothing in it. ``packages`` is what pip installs to compile it; None where that is not known before.
    """
    return ImageSpec(
        name=f"{component.name}-wheel",
        dockerfile="wheels/Dockerfile",
        target="wheel",
        platform=platform,
        product=True,
        args={**component.args, **args},
        tuning=tuning,
        parents={
            "BASE_IMAGE": builder,
            "SOURCE_IMAGE": Sibling(image=f"{component.name}-source"),
            **(wheels([torch]) if torch else {}),
        },
        packages=packages,
        description=f"Wheel of {component.title}",
        licenses="BSD-3-Clause",
        suffix=suffix,
    )


def wheels(components: Iterable[Component]) -> dict[str, Parent]:
    """Return the parents by which a Dockerfile takes the components' wheels."""
    return {f"{part.prefix}_WHEEL_IMAGE": Sibling(image=f"{part.name}-wheel") for part in components}


def titles(components: Iterable[Component]) -> str:
    """Return the components' names as a list in a sentence."""
    *most, last = (component.title for component in components)
    return f"{', '.join(most)} and {last}" if most else last


def tuning(max_jobs: MaxJobsConfig, component: str, compiler_cache: str | None = None) -> dict[str, str]:
    """Return the number of parallel jobs and the remote compiler cache as arguments, where the stack sets them."""
    jobs = max_jobs.of(component)
    return {
        **({"MAX_JOBS": str(jobs)} if jobs else {}),
        **({"CCACHE_REMOTE": compiler_cache} if compiler_cache else {}),
    }


def triton(torch: str, commit: str | None, machine: Machine) -> dict[str, str]:
    """Return the Triton that a torch is built for as an argument: at the release's own pin, none before 2.0.

    There is none either where the Python index has no such Triton for the machine.

    Where the release leaves a choice, and at a commit, there is no argument: torch's source names the Triton.
    """
    release = torch_release(torch)
    if not release.triton or missing_triton(torch, machine):
        return {"TRITON_VERSION": "none"}
    pin = None if commit else release.triton_pin
    return {"TRITON_VERSION": pin} if pin else {}


def features(
    torch: str,
    machine: Machine,
    *,
    cuda: bool = True,
    without: Mapping[str, str] | None = None,
    switches: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return what an image's torch must have, as an argument of its checks: the features of the published wheel.

    Only wheels for amd64 are in the table. Those ``without`` are left out by choice, each with its reason.
    ``switches``, variables of PyTorch's build, add features, with ``+`` before them, and take some away, with ``-``.
    """
    published = published_features(torch, cuda=cuda) if machine == "amd64" else ()
    switched = switched_features(switches or {})
    left = [feature for feature in published if feature not in (without or {}) and f"-{feature}" not in switched]
    return {"FEATURES": " ".join([*left, *switched])}


def libraries(torch: str, cuda_version: str) -> dict[str, str]:
    """Return NVIDIA's libraries that a torch is built with, as arguments: ``{"CUSPARSELT_VERSION": "0.8.1"}``."""
    return {f"{name.upper()}_VERSION": version for name, version in built_libraries(torch, cuda_version).items()}
