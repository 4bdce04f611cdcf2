"""GPUs by a claim (``gpuClaim``) in place of an extended resource: what pods ask for, quotas, and how many runners fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pydantic import ValidationError

from components.runners.kubernetes import cluster_health, gpu_validation, isolation, job_pods, pod
from components.runners.kubernetes.objects import declaration
from containers.image.gpu.node_labels import GPU
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.versions.nodes import EFA
from tests.helpers.every import every
from tests.unit.runners.test_cluster_health import kubectl as kubectl  # noqa: PLC0414 - a fixture
from tests.unit.runners.test_cluster_health import node, says

GITHUB = {"url": "https://github.com/acme", "secret": "github"}
DEVICES = "{}.deviceclass.resource.k8s.io/devices"


def runners(**values: Any) -> KubernetesRunnersConfig:
    given = {"profile": "eks-p5", "gpuClaim": {}, **values}
    return KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, **given})


def claims(config: KubernetesRunnersConfig) -> dict[str, Any]:
    """Return the objects of claims by their names."""
    return {each["metadata"]["name"]: each for each in isolation.gpu_claims(config, config.jobs_namespace)}


def quota(config: KubernetesRunnersConfig) -> dict[str, str]:
    """Return the quota of the namespace in which jobs run."""
    guards = [isolation.quota(config), *job_pods.guarded(config, ())]
    quotas = [each for each in guards if each["kind"] == "ResourceQuota"]
    hard: dict[str, str] = quotas[config.job_pods]["spec"]["hard"]
    return hard


@every("more", [{}, {"jobPods": True}])
def test_claimed_gpus_are_no_extended_resource(more: dict[str, Any]) -> None:
    config = runners(gpus=2, maxRunners=3, **more)
    spec = (job_pods.template(config) if more else pod.template(config, "r:1", "d:1"))["spec"]
    (container,) = spec["containers"]
    assert GPU not in container["resources"]["limits"]
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    assert container["resources"]["claims"] == [{"name": "gpus"}]
    # The rest of what GPUs bring is as with the device plugin.
    assert container["resources"]["limits"][EFA] == "8"
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert "NVIDIA_VISIBLE_DEVICES" not in {entry["name"] for entry in container.get("env", ())}
    assert quota(config)[DEVICES.format("gpu.nvidia.com")] == "12"
    assert not {key for key in quota(config) if GPU in key}
    assert claims(config)["gpus"]["metadata"]["namespace"] == config.jobs_namespace
    (request,) = claims(config)["gpus"]["spec"]["spec"]["devices"]["requests"]
    assert request == {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
    assert (config.per_node, config.nodes_driver) == (4, ("580", "profile"))


def test_runner_of_job_pods_claims_nothing() -> None:
    config = runners(jobPods=True)
    spec = pod.template(config, "r:1", "d:1")["spec"]
    assert "resourceClaims" not in spec
    assert "claims" not in spec["containers"][0]["resources"]
    step = json.loads(job_pods.files(config)["data"]["step.json"])["spec"]
    assert "resourceClaims" not in step
    assert "claims" not in step["containers"][0]["resources"]
    assert isolation.quota(config)["spec"]["hard"][DEVICES.format("gpu.nvidia.com")] == "0"


def test_claim_of_parts_selects_them_by_their_profile() -> None:
    h100 = "device.attributes['gpu.nvidia.com'].productName.contains('H100')"
    config = runners(gpus=14, gpuClaim={"mig": "3g.40gb", "selectors": [h100]})
    (request,) = claims(config)["gpus"]["spec"]["spec"]["devices"]["requests"]
    of_mig = "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"
    selectors = [{"cel": {"expression": expression}} for expression in (of_mig, h100)]
    assert request["exactly"] == {"deviceClassName": "mig.nvidia.com", "count": 14, "selectors": selectors}
    # How many of them a node has, and what share of its fabric goes with them, is not known.
    assert (config.resources, config.warnings) == ({}, [])


def test_shared_claim_is_one_for_all_runners_of_a_set() -> None:
    shared = {"profile": "eks-p5", "gpus": 1, "efa": 0, "maxRunners": 5, "gpuClaim": {"shared": True}}
    config = KubernetesRunnersConfig.model_validate(
        {"kind": "kubernetes", "github": GITHUB, "jobPods": True, "sets": {"shared": shared, "cpu": {}}}
    )
    own, other = config.all_sets
    assert claims(config)["gpus-shared"]["kind"] == "ResourceClaim"
    assert job_pods.template(own)["spec"]["resourceClaims"] == [{"name": "gpus", "resourceClaimName": "gpus-shared"}]
    assert "resourceClaims" not in job_pods.template(other)["spec"]
    assert quota(config)[DEVICES.format("gpu.nvidia.com")] == "1"
    assert own.per_node == 48  # by its CPUs: the GPU is no bound
    assert config.warnings == []


def test_gpu_checks_have_a_claim_of_their_own() -> None:
    config = runners(gpuClaim={"shared": True}, maxRunners=1, validation={"image": "torch"})
    assert config.validation
    spec = gpu_validation.job(config, config.validation)["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "gpu-checks"}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "gpus"}]
    (template,) = isolation.own_claim(config, gpu_validation.NAME)
    assert (template["kind"], template["metadata"]["name"]) == ("ResourceClaimTemplate", "gpu-checks")
    assert quota(config)[DEVICES.format("gpu.nvidia.com")] == "24"  # eight of the runner, and of two checks


@every(
    "given, line",
    [
        ({"profile": "cpu"}, "gpuClaim: nodes of cpu have no nvidia.com/gpu: leave it out, or give another profile"),
        ({"gpus": 0}, "gpuClaim: how many of them a runner gets is not known: give gpus, 1 or more"),
        ({"gpuClaim": {"mig": "3g.40gb"}}, "gpuClaim: how many of them a runner gets is not known: give gpus, 1 or more"),
        ({"gpuClaim": {"deviceClass": "h100.acme.example"}}, "gpuClaim: how many of them a runner gets is not known: give gpus, 1 or more"),
        ({"gpuResource": GPU}, "gpuResource has no effect, because gpuClaim asks for the GPUs: leave it out"),
        ({"gpuClaim": {"mig": "3g.40gb", "deviceClass": "a"}, "gpus": 1}, "mig is of the device class mig.nvidia.com: leave out mig or deviceClass"),
        ({"gpuClaim": {"mig": "half"}, "gpus": 1}, "expected a profile of MIG, such as 3g.40gb"),
        ({"gpuClaim": {"deviceClass": "GPU"}, "gpus": 1}, "expected a device class, such as gpu.nvidia.com"),
        ({"gpuClaim": {"shared": True}, "efa": 0, "maxRunners": 33, "jobPods": True, "memory": "64Gi", "shm": "1Gi"}, "gpuClaim.shared: all runners are on the node of their GPUs, and it has room for 32: give maxRunners 32 or less"),
    ],
)  # fmt: skip
def test_claim_that_no_node_can_grant_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        runners(**given)
    assert caught.value.errors()[0]["msg"].removeprefix("Value error, ") == line


@every(
    "kind, values", [("ResourceClaimTemplate", {}), ("ResourceClaim", {"gpuClaim": {"shared": True}, "maxRunners": 1})]
)
def test_changed_claim_is_made_anew(kind: str, values: dict[str, Any]) -> None:
    """The API server changes none in place (kubernetes/api v0.35.7, resource/v1/types.go:749 and :1865)."""
    options: dict[str, Any] = {}
    (claim,) = isolation.gpu_claims(runners(**values), "n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"pulumi_kubernetes.resource.v1.{kind}", lambda _, opts, **body: options.update(body, opts=opts))
        declaration.declare("runners", claim, pulumi.ResourceOptions())
    assert options["opts"].replace_on_changes == ["spec"]
    assert options["opts"].delete_before_replace


def test_warnings_without_the_device_class_name_it(kubectl: Path) -> None:
    says(kubectl, nodes=[node(**{GPU: "0"})])  # its GPUs are those of a driver, and no extended resource
    asked = "get deviceclasses.resource.k8s.io --field-selector=metadata.name=gpu.nvidia.com"
    program, answer = kubectl / "kubectl", kubectl / "classes"
    program.write_text(program.read_text().replace('$*" in', f'$*" in\n  *"{asked}"*) cat {answer};;'))
    answer.write_text(json.dumps({"items": []}))
    (line,) = cluster_health.warnings(runners())
    assert line == (
        "the cluster has no device class gpu.nvidia.com, of which a runner claims 8: does NVIDIA's DRA driver run "
        "there, on Kubernetes 1.34 or later?"
    )
    answer.write_text(json.dumps({"items": [{"metadata": {"name": "gpu.nvidia.com"}}]}))
    assert cluster_health.warnings(runners()) == []
