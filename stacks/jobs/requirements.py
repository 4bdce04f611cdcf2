"""The needs of a stack's images of their machines, as flavors give them to Compose and Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field


class Workspace(BaseModel):
    """How a person works in an image."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field("/workspace", description="The project's folder in the container.")
    uid: int | None = Field(None, description="User id that the image was made for. None: for anybody.")
    groups: tuple[str, ...] = Field((), description="Groups of the image that its user needs, by name.")


class Requirements(BaseModel):
    """The needs of a stack's images of the machines that run them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus_per_node: int = Field(8, description="GPUs of a node. Default: those of DGX, of HGX, and of EC2's p4d and p5.")
    no_gpu: str | None = Field(None, description="The key and value that leave CUDA out. None: the images have CUDA.")
    workspaces: Mapping[str, Workspace] = Field(
        default_factory=dict, description="How to work in an image, by its name, if it differs from the default."
    )
