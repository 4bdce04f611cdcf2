"""``slipway:torch`` of a ``universal`` stack: releases, commits or branches to build."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stacks.config.model import Model, form
from stacks.config.torch import NEWEST, TorchConfig
from stacks.config.values import DefaultedTorchRelease, TorchRelease
from stacks.flavors.torch_family.components import Component, torch_components
from stacks.versions.pytorch import torch_release

Ref = Annotated[
    str,
    form(
        r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*",
        "a commit of 7 to 40 digits 0-9 a-f, or a branch such as release/2.14",
    ),
]


class SourceCommitsConfig(Model):
    """Commits or branches to build instead of the releases' own. `slipway lock` pins a branch to a commit."""

    torch: Ref | None = Field(None, description="Commit or branch of pytorch/pytorch.")
    vision: Ref | None = Field(None, description="Commit or branch of pytorch/vision.")
    audio: Ref | None = Field(None, description="Commit or branch of pytorch/audio.")
    text: Ref | None = Field(None, description="Commit or branch of pytorch/text.")


class TorchSourceConfig(TorchConfig):
    """Which torch, torchvision, torchaudio and torchtext to build."""

    version: TorchRelease = Field(NEWEST, description="Release of torch.")
    text: DefaultedTorchRelease = Field(
        None,
        description="Release of torchtext, or false for none. Default: the newest that goes with this torch, if any.",
    )
    commits: SourceCommitsConfig = Field(
        default_factory=SourceCommitsConfig, description="Commits or branches to build instead of the releases' own."
    )

    @property
    def versions(self) -> dict[str, str]:
        """The releases of torch and of the companions that the stack has, torch first."""
        text = torch_release(self.version).text if self.text is None else self.text
        return super().versions | ({"text": text} if text else {})

    @property
    def components(self) -> list[Component]:
        """Torch and the companions that the stack has."""
        return torch_components(self.versions, self.commits)
