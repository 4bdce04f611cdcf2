"""Settings of Pulumi's providers in a stack's file: they reach the providers that Slipway declares, or are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime.config import CONFIG

from components import reached_engine
from components.reached_engine import ReachedEngine
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.checks.provider_settings import refusals
from stacks.config.stack_file import other_settings, stack_file
from tests.fakes.pulumi_mocks import SECRET, Recorder, run
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import RUNNERS as EC2

CLUSTER = {"kind": "kubernetes", "profile": "eks-p5", "github": {"url": "https://github.com/acme", "secret": "s"}}
ECR = {"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml"}
AWS = "pulumi:providers:aws"
ROLE = "arn:aws:iam::123456789012:role/deploy"


@pytest.fixture(autouse=True)
def _config() -> Iterator[None]:
    before = dict(CONFIG.get())
    yield
    pulumi.runtime.set_all_config(before)


def deployed(settings: dict[str, str], *secret: str, **stack: Any) -> Recorder:
    pulumi.runtime.set_all_config(settings, [*secret])
    return run(**stack)[0]


def test_settings_of_aws_reach_its_provider() -> None:
    tags, roles = {"tags": {"team": "ml", "costCenter": "7"}}, [{"roleArn": ROLE, "sessionName": "ci"}]
    settings = {
        "aws:defaultTags": json.dumps(tags),
        "aws:assumeRoles": json.dumps(roles),
        "aws:profile": "7",
        "aws:maxRetries": "7",
        "aws:skipMetadataApiCheck": "true",
        "aws:token": "hunter2",
        "other:profile": "x",
    }
    provider = deployed(settings, "aws:token", registry=ECR).resources[AWS, "registry-aws"]
    assert json.loads(provider["defaultTags"]) == tags
    assert json.loads(provider["assumeRoles"]) == roles
    assert (provider["profile"], json.loads(provider["maxRetries"])) == ("7", 7)
    assert json.loads(provider["skipMetadataApiCheck"]) is True
    assert provider["token"][SECRET]
    assert provider["region"] == "eu-west-1"


def test_settings_of_kubernetes_and_docker_reach_their_providers() -> None:
    settings = {
        "kubernetes:enableServerSideApply": "false",
        "docker:registryAuth": json.dumps([{"address": "r.example", "username": "u"}]),
    }
    engines = {"linux/amd64": "ssh://builder"}
    recorder = deployed(settings, chain={}, runners=CLUSTER)
    assert recorder.resources["pulumi:providers:kubernetes", "runners-cluster"]["enableServerSideApply"] == "false"
    provider = deployed(settings, engines=engines).resources["pulumi:providers:docker", "engine-amd64"]
    assert json.loads(provider["registryAuth"]) == [{"address": "r.example", "username": "u"}]


def test_image_is_pushed_from_the_engine_that_built_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of ``docker:host``, where the docker provider has no zstd."""
    monkeypatch.setenv("SLIPWAY_DOCKER_PROVIDER", "official")
    settings = {"docker:host": "ssh://builder", "docker:sshOpts": '["-p", "2222"]'}
    pushed_as = {"pushed": f"r.example/x@sha256:{'2' * 64}"}
    answers = {f"{name}-push": pushed_as for name in ("torch", "extras")}
    recorder = deployed(settings, answers=answers, compression={"kind": "zstd", "level": 3})
    pushed = recorder.of_type("pulumi-python:dynamic/image:CompressedPush")["torch-push"]
    assert (pushed["engine"], pushed["ssh"]) == ("ssh://builder", ["-p", "2222"])


def test_engine_of_the_settings_builds_each_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack for several platforms has a provider for each, of the same engine."""
    monkeypatch.setenv("SLIPWAY_DOCKER_PROVIDER", "official")
    monkeypatch.setenv("DOCKER_HOST", "unix:///other.sock")
    settings = {"docker:host": "tcp://builder:2376", "docker:certPath": "/certificates"}
    pushed_as = {"pushed": f"r.example/x@sha256:{'2' * 64}"}
    platforms = ["linux/amd64", "linux/arm64"]
    answers = {f"{name}-{each[6:]}-push": pushed_as for name in ("torch", "extras") for each in platforms}
    zstd = {"kind": "zstd", "level": 3}
    recorder = deployed(settings, answers=answers, indexed=True, platforms=platforms, compression=zstd)
    for each in ("engine-amd64", "engine-arm64"):
        provider = recorder.resources["pulumi:providers:docker", each]
        assert (provider["host"], provider["certPath"]) == ("tcp://builder:2376", "/certificates")
    pushes = recorder.of_type("pulumi-python:dynamic/image:CompressedPush").values()
    assert {(each["engine"], each["certificates"]) for each in pushes} == {("tcp://builder:2376", "/certificates")}


def test_certificates_of_a_folder_reach_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``docker:host`` they are for the host of the environment; no key is in the state."""
    inputs = ReachedEngine(folder=str(tmp_path)).inputs
    with pytest.raises(SlipwayError, match=f"certPath {tmp_path}: {tmp_path}/ca.pem: No such file"):
        reached_engine.address(inputs)
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").write_text(name)
    monkeypatch.setenv("DOCKER_HOST", "tcp://builder:2376")
    address = reached_engine.address(inputs)
    assert (address.host, address.tls) == ("tcp://builder:2376", {"ca": "ca", "cert": "cert", "key": "key"})
    assert reached_engine.address(ReachedEngine().inputs).host == ""  # that of the environment, or by default


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("aws:assumeRole", "{}", "aws:assumeRole: the provider has no such setting (did you mean 'assumeRoles'?)"),
        ("aws:defaultTags", "team", "aws:defaultTags: 'team' is not JSON"),
    ],
)
def test_setting_that_the_provider_lacks_is_one_line(key: str, value: str, line: str) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        deployed({key: value}, registry=ECR)
    assert str(caught.value).startswith(line)


RUNNERS_AT_AWS = {"flavor": "runners", "runners": EC2}
BUILDER = {"flavor": "runners", "runners": {**EC2, "build": {"instanceType": "c7i.4xlarge"}}}
RESERVATION = {"ids": ["cr-0123456789abcdef0"], "region": "eu-west-1", "account": "123456789012", "nodeClass": "gpus"}
RESERVED = {"flavor": "runners", "runners": {**CLUSTER, "profile": "eks-p5", "reservation": RESERVATION}}
ENGINES = {"flavor": "local", "engines": {"linux/amd64": "ssh://builder"}}


@every(
    "values, key, value, line",
    [
        ({"flavor": "local"}, "aws:region", "eu-west-1", "aws:region: nothing of the stack is at AWS: leave it out"),
        ({"flavor": "local", "registry": ECR}, "aws:region", "eu-west-1", None),
        ({"flavor": "local", "registry": ECR}, "aws:defaultTags", {"tags": {}}, None),
        ({"flavor": "local", "registry": ECR}, "aws:profile", "ml", None),
        (RUNNERS_AT_AWS, "aws:region", "us-east-1", "aws:region: 'us-east-1': the stack names its own, eu-west-1"),
        (RUNNERS_AT_AWS, "aws:allowedAccountIds", ["1"], "aws:allowedAccountIds: the stack's own account"),
        (RUNNERS_AT_AWS, "aws:assumeRoles", [], None),
        (RESERVED, "aws:profile", "ml", None),
        (RESERVED, "aws:assumeRoles", [], "aws:assumeRoles: AWS's SDK looks up the nodes' reservations"),
        (BUILDER, "aws:assumeRoles", [], "aws:assumeRoles: the builder is reached by AWS's CLI"),
        ({"flavor": "local"}, "kubernetes:context", "c", "kubernetes:context: nothing of the stack is in a cluster"),
        ({"flavor": "runners", "runners": CLUSTER}, "kubernetes:context", "c", "kubernetes:context: give slipway:runners"),
        ({"flavor": "runners", "runners": CLUSTER}, "kubernetes:suppressDeprecationWarnings", "true", None),
        ({"flavor": "local"}, "docker:host", "ssh://x", None),
        ({"flavor": "local"}, "docker:context", "x", "docker:context: give docker:host instead, the address that"),
        (ENGINES, "docker:host", "ssh://x", "docker:host: the stack names its engines"),
        ({"flavor": "local"}, "pulumi:disable-default-providers", ["*"], "pulumi:disable-default-providers: '*': Docker"),
        ({"flavor": "local"}, "pulumi:disable-default-providers", '["aws", "docker"]', "pulumi:disable-default-providers: 'docker'"),
        ({"flavor": "local"}, "pulumi:disable-default-providers", ["aws", "kubernetes"], None),
        ({"flavor": "local"}, "pulumi:tags", {"a": "b"}, None),
        ({"flavor": "local"}, "acme:anything", "x", None),
    ],
)  # fmt: skip
def test_setting_without_effect_is_refused(values: dict[str, Any], key: str, value: Any, line: str | None) -> None:
    lines = list(refusals(flavors.load(values, "stack x"), {key: value}))
    assert [each.startswith(line or "") and each.endswith(": leave it out") for each in lines] == [True] * bool(line)


def test_settings_of_the_file_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    text = "config:\n  slipway:flavor: runners\n  aws:profile: ml\n  acme:x: y\n"
    stack_file("x", tmp_path).write_text(text)
    assert other_settings("x", ("aws", "pulumi"), tmp_path) == {"aws:profile": "ml"}


def test_plan_refuses_settings_that_pulumi_read() -> None:
    with pytest.raises(SlipwayError, match="stack runners-eks: aws:profile: nothing of the stack is at AWS"):
        plan.make("runners-eks", settings={"slipway:flavor": "runners", "aws:profile": "ml"})
