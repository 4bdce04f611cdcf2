"""``runners.github``: whom the runners serve, and how they are registered."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from stacks.config import github_url
from stacks.config.cluster.kubernetes_values import ObjectName
from stacks.config.model import SENSITIVE, Model, NonEmpty, Secret


class GitHubAppConfig(Model):
    """A GitHub App that may administer runners."""

    id: NonEmpty = Field(description="App id or client id; quote it.")
    installation: NonEmpty = Field(description="Installation id; quote it.")
    private_key: Secret = Field(description="Private key in PEM, always a secret.")


class GitHubConfig(Model):
    """What the runners serve, and one way to register them: an App, a token, or a secret of the cluster."""

    url: Annotated[str, AfterValidator(github_url.check)] = Field(
        description="Organization or repository, such as https://github.com/acme or https://github.com/acme/images."
    )
    app: GitHubAppConfig | None = Field(None, description="GitHub App that registers runners.")
    token: Secret | None = Field(None, description="Personal access token that registers runners, always a secret.")
    secret: ObjectName | None = Field(
        None,
        description="Secret in the runners' namespace with either, in ARC's format. Create it after the first update.",
        json_schema_extra=SENSITIVE,
    )

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        logins = [name for name in ("app", "token", "secret") if getattr(self, name) is not None]
        if len(logins) != 1:
            raise ValueError(
                "no credentials for GitHub: give app, token (with `pulumi config set --secret --path`) or secret"
                if not logins
                else f"{' and '.join(logins)} are given: keep one"
            )
        return self
