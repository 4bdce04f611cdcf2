"""Parts of the AWS tests: moto as AWS, a registry with a password in place of ECR's own, and a project that uses both."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.engine.project import Project
from tests.fakes.aws.served import aws
from tests.provider.conftest import Registry, private_registry
from tests.provider.plugin import CHECKOUT

ACCOUNT, REGION = "123456789012", "eu-west-1"
"""The account is moto's."""
TOKEN = f"{ACCOUNT}-auth-token"
"""The password that moto gives for the account's registry."""
OTHER = "$2b$05$abcdefghijklmnopqrstuu2NLsj2TLJyhrYyHYKwq6mWMzx1gUWne"
HTPASSWD = f"AWS:$2b$05$abcdefghijklmnopqrstuu/4ofrUS75HrKu6f.iuRo0I/XlrmpqlC\nother:{OTHER}\n"
"""TOKEN, hashed with bcrypt, and the password of another user."""
OTHER_PASSWORD = "second-horse"

NO_SIGN: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
"""What takes a project's AWS credentials away."""


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The address of an AWS of our own."""
    with aws() as address:
        yield address


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that wants the user and password of an ECR token: moto has ECR's API, but takes no layers."""
    with private_registry(tmp_path_factory.mktemp("ecr"), htpasswd=HTPASSWD) as registry:
        yield registry


class AwsProject(Project):
    """A project whose registry is an ECR behind a name of its own, and the stand-in for Pulumi's AWS plugin."""

    def __init__(self, root: Path, moto: str, registry: Registry) -> None:
        self.host = registry.address
        super().__init__(root)
        plugins = root.with_name("plugins")
        plugins.mkdir()
        launcher = plugins / "pulumi-resource-aws"
        command = shlex.join([sys.executable, "-P", "-m", "tests.fakes.plugin", "tests.fakes.aws.plugin"])
        launcher.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(CHECKOUT))} exec {command} "$@"\n')
        launcher.chmod(0o755)
        # The venv's bin stays first on PATH: the language host takes its Python from there.
        self.environment |= {
            "PATH": f"{Path(sys.executable).parent}:{plugins}:{self.environment['PATH']}",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "HOME": str(root),
            "AWS_ENDPOINT_URL": moto,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        self.ecr: Any = boto3.client(
            "ecr", REGION, endpoint_url=moto, aws_access_key_id="test", aws_secret_access_key="test"
        )

    def configure(self, registry: dict[str, Any] | None = None, **values: Any) -> None:
        """Write the stack's YAML; ``registry`` holds what differs from the ECR of the tests."""
        repository = {"kind": "ecr", "repository": f"{self.host}/{self.path}", "account": ACCOUNT, "region": REGION}
        super().configure(**values, registry={**repository, **(registry or {})})

    def repositories(self) -> dict[str, Any]:
        """Return the project's repositories as AWS has them, by image."""
        repositories = self.ecr.describe_repositories()["repositories"]
        return {
            name.partition("/")[2]: entry
            for entry in repositories
            if (name := entry["repositoryName"]).startswith(f"{self.path}/")
        }

    def exported(self) -> str:
        """Return the state as it is stored, whatever it holds."""
        return self.pulumi("stack", "export", "-s", "t").stdout


@pytest.fixture
def project(tmp_path: Path, moto: str, registry: Registry) -> AwsProject:
    """A fresh project with an empty stack."""
    project = AwsProject(tmp_path / "project", moto, registry)
    project.add_stack()
    return project
