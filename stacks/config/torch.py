"""``slipway:torch``: the releases of torch, torchvision and torchaudio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal, Self, cast, get_args

from pydantic import Field, model_validator

from stacks.config.model import Model
from stacks.config.values import DefaultedTorchRelease, TorchRelease
from stacks.versions.pytorch import Companion, check_companion, check_torch_listed, final_version, torch_release

Package = Literal["vision", "audio"]
"""The companions of torch that images carry."""


NEWEST: Final = "2.15.0"
"""The default of stacks that compile torch, with which all extras build."""

PUBLISHED: Final = "2.14.1"
"""The default of stacks that install wheels: those of 2.15.0 are for CUDA 13.2, and torchaudio has none for it."""


class TorchConfig(Model):
    """The releases of torch, torchvision and torchaudio."""

    version: TorchRelease = Field(PUBLISHED, description="Release of torch.")
    vision: TorchRelease | None = Field(
        None, description="Release of torchvision. Default: the newest that goes with this torch."
    )
    audio: DefaultedTorchRelease = Field(
        None, description="Release of torchaudio, or false for none. Default: the newest that goes with this torch."
    )

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        torch_release(self.version)
        for package in get_args(Package):
            if getattr(self, package) is None and getattr(torch_release(self.version), package) is None:
                raise ValueError(f"no torch{package} goes with torch {self.version}; choose another release of torch")
        return self

    def companion(self, package: Package) -> str | None:
        """Return a companion's release: the stack's, else the newest that goes with this torch; None for none."""
        configured: str | Literal[False] | None = getattr(self, package)
        newest: str | None = getattr(torch_release(self.version), package)
        return newest if configured is None else configured or None

    def listed(self) -> Iterator[Callable[[], None]]:
        """Yield a check for each release of the stack: the table confirms it."""
        yield partial(check_torch_listed, self.version)
        for package, version in self.versions.items():
            if package in get_args(Companion):
                yield partial(check_companion, self.version, cast("Companion", package), version)

    @property
    def versions(self) -> dict[str, str]:
        """The releases of torch and of the companions that the stack has, torch first."""
        companions = {package: self.companion(package) for package in get_args(Package)}
        return {"torch": self.version} | {package: version for package, version in companions.items() if version}


def check_published(torch: TorchConfig) -> None:
    """Refuse release candidates where published wheels are installed: no index holds them.

    Raises ValueError: naming the release to use.
    """
    for package, version in torch.versions.items():
        if final_version(version) != version:
            key = "version" if package == "torch" else package
            raise ValueError(
                f"{key} '{version}': there are no wheels of release candidates; use {final_version(version)}"
            )
