"""``runners``: the machines that images are built on, as a stack's configuration describes them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from stacks.model import Model
from stacks.versions.nodes import EFA, GPU, INFINIBAND, check_count, node

_QUANTITY = re.compile(r"[1-9][0-9]*(?:\.[0-9]+)?(?:Ki|Mi|Gi|Ti)")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_GITHUB = re.compile(r"https://[A-Za-z0-9.-]+(?:/enterprises)?/[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)?")


def _quantity(value: str) -> str:
    if re.fullmatch(r"[0-9.]+", value):
        raise ValueError(f"a size needs a unit: {value}Gi?")
    if not _QUANTITY.fullmatch(value):
        raise ValueError("expected a size such as 200Gi, with one of Ki, Mi, Gi, Ti")
    return value


def _label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError("expected 1 to 63 lower-case letters, digits and -, a letter or digit at either end")
    return value


def _github(value: str) -> str:
    if not _GITHUB.fullmatch(value.rstrip("/")):
        raise ValueError("expected https://github.com/<organization>, or .../<repository>")
    return value.rstrip("/")


Quantity = Annotated[str, AfterValidator(_quantity)]
Label = Annotated[str, AfterValidator(_label)]


class GitHubApp(Model):
    """A GitHub App that may administer runners."""

    id: str = Field(description="App id or client id; quote it.")
    installation: str = Field(description="Installation id; quote it.")
    private_key: SecretStr = Field(description="Private key in PEM, always a secret.")


class GitHub(Model):
    """Whose jobs the runners take, and who registers them: exactly one of an App, a token, a secret of the cluster."""

    url: Annotated[str, AfterValidator(_github)] = Field(
        description="Organization or repository, such as https://github.com/acme or https://github.com/acme/images."
    )
    app: GitHubApp | None = Field(None, description="GitHub App that registers runners.")
    token: SecretStr | None = Field(None, description="Personal access token that does, always a secret.")
    secret: Label | None = Field(None, description="Secret in the runners' namespace with either, as ARC reads it.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("app", "token", "secret") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "no credentials for GitHub: give app, token (with `pulumi config set --secret --path`) or secret"
                if not given
                else f"{' and '.join(given)} are given: leave one"
            )
        return self


class KubernetesRunners(Model):
    """GitHub Actions runners on a Kubernetes cluster, each with a Docker daemon of its own, on nodes of one profile."""

    kind: Literal["kubernetes"] = Field(description="Runners on a Kubernetes cluster.")
    profile: str = Field("cpu", description="Kind of node: see stacks/versions/nodes.toml.")
    context: str | None = Field(None, description="Context of the kubeconfig. Default: its current one.")
    namespace: Label = Field("slipway-runners", description="Namespace that the runners have to themselves.")
    github: GitHub = Field(description="Whose jobs they take.")
    min_runners: int = Field(0, ge=0, description="Runners that wait for jobs; 0 costs nothing while idle.")
    max_runners: int = Field(4, ge=1, description="Most runners at once.")
    group: str = Field("default", description="Runner group at GitHub.")
    labels: tuple[Label, ...] = Field((), description="Labels beside the scale set's name, by which jobs choose.")
    gpus: int | None = Field(None, ge=0, description="GPUs of each runner. Default: all of the node.")
    efa: int | None = Field(None, ge=0, description="EFA interfaces of each runner. Default: all of the node.")
    infiniband: int | None = Field(None, ge=0, description="InfiniBand devices of each runner. Default: all.")
    shm: Quantity = Field("64Gi", description="Size of /dev/shm where there are GPUs; it counts as memory.")
    cache: Quantity = Field("200Gi", description="Volume for the layers of each Docker daemon.")
    storage_class: str | None = Field(None, description="Storage class of that volume. Default: the cluster's.")
    grace: int = Field(
        720, ge=1, le=1440, description="Minutes that a runner has to end its build when its node is drained."
    )

    @field_validator("profile")
    @classmethod
    def _known(cls, value: str) -> str:
        return node(value).name

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_runners > self.max_runners:
            raise ValueError(f"minRunners {self.min_runners} is more than maxRunners {self.max_runners}")
        for name, resource in (("gpus", GPU), ("efa", EFA), ("infiniband", INFINIBAND)):
            count = getattr(self, name)
            if count is not None:
                check_count(self.profile, resource, count, field=f"runners.{name}")
        if self.gpus == 0 and (self.efa or self.infiniband):
            raise ValueError("gpus is 0: EFA and InfiniBand serve GPUs; leave them out, or ask for GPUs")
        return self

    @property
    def devices(self) -> dict[str, int]:
        """What each runner has of the node's extended resources, by their names in Kubernetes; none that is 0."""
        asked = {GPU: self.gpus, EFA: self.efa, INFINIBAND: self.infiniband}
        if self.gpus == 0:
            return {}
        return {
            resource: count
            for resource, most in node(self.profile).limits.items()
            if (count := most if asked[resource] is None else asked[resource])
        }
