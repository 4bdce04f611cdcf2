"""`slipway github init` prints a role's policy from addresses: the role gets what they name. IAM's verdict is an outsider's."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.github.publishing_setup import steps
from containers.errors import SlipwayError
from stacks.config.registries.ecr import EcrRegistryConfig
from tests.helpers.iam_simulator import ACCOUNT, Ask, allowed, check

REGION = "eu-west-1"
KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"
ECR = {"kind": "ecr", "repository": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/ml"}
BACKEND = f"s3://acme-pulumi/state?region={REGION}"


def documents(folder: Path, registries: list[dict[str, Any]], backend: str, provider: str) -> dict[str, Any]:
    """Return the documents that the printed commands give to AWS, run by a shell."""
    log = folder / "log"
    said = {"*customization/sub*": "repo:acme@1/images@2", '*" --jq .id"': "2", "*": ""}
    gh = f'case "$*" in {" ".join(f"{words}) echo {answer} ;;" for words, answer in said.items())} esac'
    for name, text in {"gh": gh, "aws": f'printf "%s\\0" "$@" >> {log}; echo {ACCOUNT}'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    listed = steps("acme/images", map(EcrRegistryConfig.model_validate, registries), backend, provider)
    script = "\n".join(["set -eu", *(command for step in listed for command in step.commands)])
    subprocess.run(["sh"], input=script, text=True, check=True, env={"PATH": f"{folder}:{os.environ['PATH']}"})
    words = log.read_text().split("\0")
    return {
        "trust": json.loads(words[words.index("--assume-role-policy-document") + 1]),
        "policy": json.loads(words[words.index("--policy-document") + 1]),
    }


def key(name: str, region: str = REGION, account: str = ACCOUNT, alias: str = "") -> list[Ask]:
    context = {"kms:RequestAlias": alias} if alias else {}
    resource = f"arn:aws:kms:{region}:{account}:key/{name}"
    return [Ask(f"kms:{action}", resource, context) for action in ("Decrypt", "Encrypt")]


@pytest.mark.parametrize("registries", [[ECR], []], ids=["ecr", "state alone"])
def test_publisher_reaches_its_state_and_path_alone(tmp_path: Path, registries: list[dict[str, Any]]) -> None:
    policy = documents(tmp_path, registries, BACKEND, f"awskms://alias/pulumi?region={REGION}")["policy"]
    check(policy)
    repository = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository"
    for ask in (Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi/state/x"), *key(KEY, alias="alias/pulumi")):
        assert allowed(policy, ask), ask
    assert allowed(policy, Ask("ecr:PutImage", f"{repository}/ml/torch")) == bool(registries)
    for ask in (
        Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi/other/x"),
        Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi-2/state/x"),
        Ask("s3:PutBucketPolicy", "arn:aws:s3:::acme-pulumi"),
        Ask("ecr:PutImage", f"{repository}/mlx/torch"),
        Ask("ecr:PutImage", f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/ml/torch"),
        Ask("ecr:BatchDeleteImage", f"{repository}/ml/torch"),
        Ask("ecr:SetRepositoryPolicy", f"{repository}/ml/torch"),
        Ask("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/slipway-publish-2"),
        *key(KEY, alias="alias/other"),
        *key(KEY),
        *key(KEY, region="us-east-1", alias="alias/pulumi"),
        *key(KEY, account="210987654321", alias="alias/pulumi"),
    ):
        assert not allowed(policy, ask), ask


@pytest.mark.parametrize(
    "provider",
    [f"awskms://{KEY}?region={REGION}", f"awskms:///arn:aws:kms:{REGION}:{ACCOUNT}:key/{KEY}?region={REGION}"],
)
def test_publisher_uses_the_named_key_alone(tmp_path: Path, provider: str) -> None:
    policy = documents(tmp_path, [], BACKEND, provider)["policy"]
    check(policy)
    assert [allowed(policy, ask) for ask in key(KEY)] == [True, True]
    other = "0" + KEY[1:]
    assert not any(allowed(policy, ask) for ask in (*key(other), *key(KEY, account="210987654321")))


@pytest.mark.parametrize("registries", [[ECR], []], ids=["ecr", "state alone"])
def test_trust_is_one_environment_of_one_repository(tmp_path: Path, registries: list[dict[str, Any]]) -> None:
    [statement] = documents(tmp_path, registries, BACKEND, "")["trust"]["Statement"]
    issuer = "token.actions.githubusercontent.com"
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{issuer}"}
    assert statement["Condition"] == {
        "StringEquals": {
            f"{issuer}:aud": "sts.amazonaws.com",
            f"{issuer}:sub": "repo:acme@1/images@2:environment:publish",
        }
    }


@pytest.mark.parametrize(
    ("backend", "provider"),
    [
        ("s3://*", ""),
        ("s3://acme*", ""),
        ("s3://acme-pulum%3F", ""),
        ("s3://acme/${aws:username}", ""),
        ("s3://", ""),
        ("s3://acme-pulumi/*", ""),
        ("s3://[::1", ""),
        ("s3://x'; touch pwned; echo '", ""),
        ("s3://acme-pulumi?region=eu-west-1'$(id)", ""),
        (BACKEND, "awskms://*"),
        (BACKEND, "awskms://alias/*"),
        (BACKEND, f"awskms:///arn:aws:kms:{REGION}:{ACCOUNT}:key/*"),
        (BACKEND, "awskms://alias/pulumi?region=*"),
        (BACKEND, "awskms://"),
    ],
)
def test_address_that_is_a_pattern_is_refused(backend: str, provider: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        [*steps("acme/images", [], backend, provider)]
    assert re.match("github init: --(backend|secrets-provider): ", str(caught.value))
    assert "\n" not in str(caught.value)
