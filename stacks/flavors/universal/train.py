"""``slipway:train``: the images for training, with their users, packages and variables."""

from __future__ import annotations

import functools
import re
import zoneinfo
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from containers import secret_words
from containers.errors import one_line, suggest
from stacks.config.model import Environment, Model, form

_time_zones = functools.cache(zoneinfo.available_timezones)
"""The time zones that this machine knows; reading them takes 20 ms."""

VARIABLES = 8
"""Most variables of a train image: its Dockerfile has a place for each."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGIN = re.compile(r"://[^/]*@")
"""An address with ``user:password@``."""
_RESERVED_VARIABLES = {
    "TZ": "it is set by tz",
    "PATH": "it is the image's own",
    "HOME": "it is the user's own",
    "USER_ID": "it is set by uid",
    "GROUP_ID": "it is set by gid",
    "PROJECT_ROOT": "it is set by slipway:projectRoot",
}
_ARGUMENT = re.compile(r"ENV_[1-8]_(NAME|VALUE)|LABEL_.*")
"""Arguments that the Dockerfile reads after these variables, and which would override them."""


_STACK_PACKAGES = {"python": "python", "torch": "torch", "pytorch": "torch"} | {
    f"torch{name}": f"torch.{name}" for name in ("vision", "audio", "text")
}
"""Packages that every stack has, and the key of their version."""


def _not_of_stack(value: str) -> str:
    name = re.split(r"[^A-Za-z0-9_.-]", value.rpartition("::")[2])[0].lower()
    if name in _STACK_PACKAGES:
        raise ValueError(f"{name} comes with the stack: set slipway:{_STACK_PACKAGES[name]}")
    return value


def _pip(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][ -~]*", value):
        raise ValueError("expected a requirement of pip's such as seaborn==0.11.2 or 'wandb>=0.12'")
    if _LOGIN.search(value):
        raise ValueError(
            "an address must not carry user:password@, because build arguments stay in the image's history"
        )
    return value


def _not_removed(value: str) -> str:
    if value.endswith("-"):
        raise ValueError("apt-get install removes a package whose name ends with '-': leave the '-' out")
    return value


SystemPackage = Annotated[
    str,
    form(r"[a-zA-Z0-9][a-zA-Z0-9+._:~=-]*", "a package such as tmux or git=1:2.25.1-1ubuntu3"),
    AfterValidator(_not_removed),
]
DnfPackage = Annotated[str, form(r"[a-zA-Z0-9][a-zA-Z0-9+._:~^-]*", "a package such as tmux or git-2.43.5-2.el9")]
CondaPackage = Annotated[
    str,
    form(r"([a-z0-9-]+::)?[A-Za-z0-9_][A-Za-z0-9_.-]*[=<>!~0-9A-Za-z.*,|_-]*", "a package such as numpy=1.20.3"),
    AfterValidator(_not_of_stack),
]
PipPackage = Annotated[str, AfterValidator(_pip), AfterValidator(_not_of_stack)]


class TrainConfig(Model):
    """One image for training: its user, and its packages in addition to PyTorch, which all these images share."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")] = Field(
        "train", description="The image's name is train-<name>, or train by default."
    )
    uid: int = Field(1000, ge=0, lt=2**32 - 1, description="User id that it runs as; 0 is root.")
    gid: int | None = Field(None, ge=0, lt=2**32 - 1, description="Group id that it runs as. Default: as the user id.")
    apt: tuple[SystemPackage, ...] = Field((), description="Packages of Ubuntu or Debian.")
    dnf: tuple[DnfPackage, ...] = Field((), description="Packages of Rocky Linux or UBI.")
    conda: tuple[CondaPackage, ...] = Field((), description="Packages of conda-forge, installed before PyTorch.")
    pip: tuple[PipPackage, ...] = Field((), description="Packages of the Python index, which never replace PyTorch.")
    env: Environment = Field(
        default_factory=dict, description=f"Environment variables, at most {VARIABLES}; nothing secret."
    )
    tz: str = Field("UTC", description="Time zone by its IANA name, such as Asia/Seoul.")

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        if len(value) > VARIABLES:
            raise ValueError(
                f"{len(value)} variables, and an image can have {VARIABLES}; set the others when it is run"
            )
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"'{one_line(name)}' is not a variable's name: expected letters, digits and _")
            if name in _RESERVED_VARIABLES:
                raise ValueError(f"the variable {name} cannot be set here: {_RESERVED_VARIABLES[name]}")
            if _ARGUMENT.fullmatch(name):
                raise ValueError(f"the variable {name} cannot be set here: the Dockerfile has an argument of that name")
            if _LOGIN.search(text):
                raise ValueError(
                    f"the variable {name} must not carry user:password@, which would stay in the image: "
                    "set it when the image is run"
                )
            if secret_words.NAME.search(name):
                raise ValueError(
                    f"the variable {name} reads like a secret, which would stay in the image: "
                    "set it when the image is run"
                )
            if not text.isprintable():
                raise ValueError(f"expected one printable line in {name}")
        return value

    @field_validator("tz")
    @classmethod
    def _zone(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", value):
            raise ValueError("expected an IANA time zone such as Asia/Seoul")
        known = _time_zones()
        if known and value not in known:  # a machine may have no such list; the build has one
            raise ValueError(f"is not an IANA time zone{suggest(value, sorted(known))}")
        return value

    @model_validator(mode="after")
    def _root_is_root(self) -> Self:
        if self.uid == 0 and self.group != 0:
            raise ValueError(f"uid 0 is root, whose gid is 0, not {self.gid}: leave gid out")
        return self

    @property
    def group(self) -> int:
        """The group id that it runs as."""
        return self.uid if self.gid is None else self.gid

    @property
    def image(self) -> str:
        """The image's name."""
        return "train" if self.name == "train" else f"train-{self.name}"
