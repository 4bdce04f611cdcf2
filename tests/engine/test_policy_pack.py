"""The policy pack as Pulumi's engine runs it: a process that speaks the protocol of analyzers, with its own packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from policies.stack_rules import RULES
from stacks.config.stack_file import ROOT

pytestmark = pytest.mark.slow

PACK = ROOT / "policies"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""A string that a preview does not know (pulumi, sdk/go/common/resource/plugin/rpc.go)."""
DIGEST = f"@sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the pack's requirements, from the package index."""
    venv = tmp_path_factory.mktemp("pack") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    install = [str(venv / "bin/pip"), "install", "--quiet", "--requirement", str(PACK / "requirements.txt")]
    subprocess.run(install, check=True)
    return venv / "bin/python"


@pytest.fixture
def analyzer(python: Path, tmp_path: Path) -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    """The pack, started in the program's folder as Pulumi's Python host starts it."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.t.yaml").write_text("config: {slipway:budgets: {sound: 3 GB}}\n")
    words = [str(python), "-u", str(PACK), "127.0.0.1:1"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
        process.terminate()


def resource(type_: str, name: str, parent: str = "", **props: Any) -> analyzer_pb2.AnalyzerResource:
    properties = struct_pb2.Struct()
    properties.update(props)
    return analyzer_pb2.AnalyzerResource(
        type=type_, urn=urn(type_, name), name=name, properties=properties, parent=parent
    )


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:t::slipway::{type_}::{name}"


def image(name: str, base: str) -> analyzer_pb2.AnalyzerResource:
    return resource("slipway:image:ImageVariant", name, args={"BASE_IMAGE": base}, platform="linux/amd64")


def pod(name: str, reference: str) -> analyzer_pb2.AnalyzerResource:
    return resource("kubernetes:core/v1:Pod", name, spec={"containers": [{"image": reference}]})


def violations(
    analyzer: analyzer_pb2_grpc.AnalyzerStub, *resources: analyzer_pb2.AnalyzerResource
) -> Mapping[str, str]:
    """Return the name of the resource by rule; each violation is mandatory, and names the resource.

    Pulumi shows the pack what each resource is declared with, and at the end what all of them gave out. A component
    gives out what it registers alone: an image its reference.
    """
    diagnostics = []
    for each in resources:
        request = analyzer_pb2.AnalyzeRequest(type=each.type, urn=each.urn, name=each.name, properties=each.properties)
        diagnostics += analyzer.Analyze(request).diagnostics
    given_out = [
        analyzer_pb2.AnalyzerResource(type=each.type, urn=each.urn, name=each.name, parent=each.parent)
        for each in resources
    ]
    diagnostics += analyzer.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=given_out)).diagnostics
    assert {each.enforcementLevel for each in diagnostics} <= {analyzer_pb2.MANDATORY}
    return {each.policyName: each.urn.rpartition("::")[2] for each in diagnostics}


def test_pack_reports_each_rule_to_the_engine(analyzer: analyzer_pb2_grpc.AnalyzerStub) -> None:
    info = analyzer.GetAnalyzerInfo(empty_pb2.Empty())
    assert [policy.name for policy in info.policies] == [rule.name for rule in RULES]
    bad = [
        image("bad", "debian:bookworm-slim"),
        resource("aws:ecr/repository:Repository", "bad", imageTagMutability="MUTABLE"),
        resource(
            "kubernetes:apps/v1:Deployment",
            "bad",
            spec={"template": {"spec": {"containers": [{"image": "ghcr.io/actions/actions-runner:2.335.1"}]}}},
        ),
    ]
    assert violations(analyzer, *bad) == dict.fromkeys([rule.name for rule in RULES], "bad")


def test_pack_reports_nothing_of_a_sound_stack(analyzer: analyzer_pb2_grpc.AnalyzerStub) -> None:
    sound = image("sound", f"debian{DIGEST}")
    signature = resource("pulumi-python:dynamic/image:Signature", "sound-signature", sound.urn)
    repository = resource("aws:ecr/repository:Repository", "sound", imageTagMutability="IMMUTABLE")
    assert violations(analyzer, sound, signature, repository, pod("sound", f"docker{DIGEST}")) == {}
    assert violations(analyzer, sound, signature, pod("later", UNKNOWN)) == {}
