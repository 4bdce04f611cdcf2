"""A job builds on, looks into or prepares the builder of what is published: it has its key, its network, or its node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.runners.kubernetes import build_daemon, pod
from components.runners.kubernetes.certificates import MakeCertificates
from containers.errors import SlipwayError
from stacks import plan
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.fakes.pulumi_mocks import Recorder, run
from tests.unit.runners.network_policies import Peer, allowed
from tests.unit.runners.test_app_keys import PKCS1

GITHUB = {"url": "https://github.com/acme", "secret": "github"}
REGISTRY = {"kind": "generic", "repository": "r.example/x", "username": "u", "password": "p"}
BUILDS, JOBS = {"acme.example/pool": "builds"}, {"acme.example/pool": "ci"}
RELEASE, CLAIM = "kubernetes:helm.sh/v3:Release", "kubernetes:core/v1:PersistentVolumeClaim"
SERVICES = ("ClusterIP", "LoadBalancer", "NodePort")


def runners(*, build: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    service = {"nodeSelector": BUILDS, **(build or {})}
    return {"kind": "kubernetes", "github": GITHUB, "nodeSelector": JOBS, "build": service, **values}


def published(**values: Any) -> Recorder:
    """Return what a stack declares that publishes what its build service builds."""
    return run(runners=runners(**values), registry=REGISTRY, buildOn="runners")[0]


def objects(recorder: Recorder, kind: str) -> list[dict[str, Any]]:
    return [inputs for (typ, _), inputs in recorder.resources.items() if typ.endswith(f":{kind}")]


@pytest.mark.parametrize("daemon", [True, False])
@pytest.mark.parametrize("service", SERVICES)
def test_job_has_no_key_of_the_builder(service: str, daemon: bool) -> None:
    recorder = published(build={"service": service}, daemon=daemon)
    job = recorder.of_type(RELEASE)["runners-gha-runner-scale-set"]["values"]["template"]["spec"]
    assert not [volume for volume in job["volumes"] if "secret" in volume or "projected" in volume]
    assert "build.slipway-runners-build" not in json.dumps(job)
    namespaces = {secret["metadata"]["namespace"] for secret in objects(recorder, "Secret")}
    assert namespaces == {"slipway-runners-build"}


@pytest.mark.parametrize("service", SERVICES)
def test_job_has_no_network_way_to_the_builder(service: str) -> None:
    recorder = published(build={"service": service})
    policies = objects(recorder, "NetworkPolicy")
    config = KubernetesRunnersConfig.model_validate(runners())
    job = Peer("10.0.0.1", config.namespace, pod.labels(config))
    builder = Peer("10.0.0.2", config.build_namespace, build_daemon.service_labels())
    deployer = Peer("10.0.0.3", "ops", {"slipway/deployer": "true"})
    assert not allowed(policies, job, builder, 2376)
    assert allowed(policies, deployer, builder, 2376)
    assert allowed(policies, builder, Peer("192.0.2.7"), 443)
    assert allowed(policies, Peer("10.0.0.4", "shop"), builder, 2376) == (service != "ClusterIP")


def test_former_key_and_layers_of_jobs_are_worth_nothing() -> None:
    """A job kept the key, or left a layer that later builds take from the cache."""
    former: dict[str, Any] = {"hosts": ["builds.example"]}
    for old in (former, {**former, "jobs": True}):
        assert MakeCertificates().diff("certificates", old, {**former, "jobs": False}).replaces == ["jobs"]
        assert MakeCertificates().diff("certificates", old, {**former, "jobs": True}).changes is False
    (mine,) = published().of_type(CLAIM)
    (of_jobs,) = run(runners=runners(build={"jobs": True}))[0].of_type(CLAIM)
    assert mine != of_jobs


def refusal(root: Path, **keys: Any) -> list[str]:
    """Return why a stack is refused before anything is built, a line for each reason."""
    try:
        plan.specs({"flavor": "local", "registry": REGISTRY, **keys}, "stack t", root)
    except SlipwayError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("daemon", [True, False])
def test_builder_of_jobs_that_publishes_is_refused(tmp_path: Path, daemon: bool) -> None:
    (line,) = refusal(tmp_path, buildOn="runners", runners=runners(build={"jobs": True}, daemon=daemon))
    assert line.startswith(
        "stack t: slipway:buildOn: 'runners': runners.build.jobs is true: what is published would be"
    )


@pytest.mark.parametrize("daemon", [True, False])
def test_build_service_without_clients_is_refused(tmp_path: Path, daemon: bool) -> None:
    (line,) = refusal(tmp_path, runners=runners(daemon=daemon))
    assert line.startswith("stack t: slipway:runners.build: nothing builds there: set build.jobs: true")


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({}, False),
        ({"nodeSelector": BUILDS}, True),
        ({"nodeSelector": {"acme.example/ci": "true"}}, True),
        ({"nodeSelector": BUILDS, "daemon": False}, False),
        ({"nodeSelector": {**BUILDS, "acme.example/ci": "true"}}, True),
        ({"profile": "eks-p5", "nodeSelector": {}}, False),
    ],
)
def test_escaped_job_is_on_no_node_of_the_builder(tmp_path: Path, values: dict[str, Any], refused: bool) -> None:
    lines = refusal(tmp_path, buildOn="runners", runners=runners(**values))
    assert [line.partition(": these")[0] for line in lines] == ["stack t: slipway:runners.build.nodeSelector"] * refused


CANARY = PKCS1.splitlines()[3]
LOGINS: dict[str, dict[str, Any]] = {
    "app": {"app": {"id": "1", "installation": "2", "privateKey": PKCS1}},
    "token": {"token": CANARY},
    "secret": {"secret": "registration"},
}


@pytest.mark.parametrize("daemon", [True, False])
@pytest.mark.parametrize("login", LOGINS)
def test_job_has_no_way_to_register_runners(login: str, daemon: bool) -> None:
    """The key that registers runners is in one secret, which the runner's pod neither mounts nor may read."""
    github = {"url": "https://github.com/acme", **LOGINS[login]}
    recorder = run(chain={}, runners=runners(github=github, daemon=daemon, build=None if daemon else {"jobs": True}))[0]
    chart = recorder.of_type(RELEASE)["runners-gha-runner-scale-set"]["values"]
    job = chart["template"]["spec"]
    name = chart["githubConfigSecret"]
    held = [secret for secret in objects(recorder, "Secret") if CANARY in json.dumps(secret)]
    assert [secret["metadata"]["name"] for secret in held] == ([] if login == "secret" else [name])
    assert CANARY not in json.dumps(chart)
    assert name not in json.dumps([job["volumes"], [container.get("env", []) for container in job["containers"]]])
    assert not [container for container in job["containers"] if container.get("envFrom")]
    accounts = [
        one for one in objects(recorder, "ServiceAccount") if one["metadata"]["name"] == job["serviceAccountName"]
    ]
    tokens = {job.get("automountServiceAccountToken"), *(one.get("automountServiceAccountToken") for one in accounts)}
    assert tokens == {False}
    assert not objects(recorder, "RoleBinding") + objects(recorder, "ClusterRoleBinding")
