"""Jobs in pods of their own: the template that GitHub's hook takes, and the runner that is left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from components.runners.kubernetes import build_service, isolation, job_pods, pod
from containers.image.gpu.node_labels import GPU
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.versions.nodes import EFA, node, node_names
from tests.helpers.every import every
from tests.unit.runners.network_policies import Peer, allowed

GITHUB = {"url": "https://github.com/acme", "secret": "github"}


def runners(**values: Any) -> KubernetesRunnersConfig:
    return KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, "jobPods": True, **values})


def runner_of(config: KubernetesRunnersConfig) -> dict[str, Any]:
    spec: dict[str, Any] = pod.template(config, "runner:1", "docker:1")["spec"]
    return spec


@every("profile", node_names())
def test_runner_of_job_pods_requests_no_device(profile: str) -> None:
    config = runners(profile=profile)
    spec = runner_of(config)
    (runner,) = spec["containers"]
    assert "initContainers" not in spec  # no Docker daemon
    assert runner["resources"]["limits"].keys() == {"ephemeral-storage"}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": node(profile).arch}
    assert "tolerations" not in spec  # it keeps no node with GPUs
    assert "add" not in runner["securityContext"]["capabilities"]
    env = {entry["name"]: entry.get("value") for entry in runner["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert env["ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"] == "true"
    assert env["ACTIONS_RUNNER_KUBERNETES_NAMESPACE"] == "slipway-runners-jobs"
    assert env["ACTIONS_RUNNER_IMAGE"] == "runner:1"
    mounts = {mount["name"] for mount in runner["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]} == {"work", "jobs"}


@every("profile", node_names())
def test_job_pod_has_the_devices_of_its_profile(profile: str) -> None:
    config = runners(profile=profile)
    template = job_pods.template(config)
    spec = template["spec"]
    (job,) = spec["containers"]
    assert job["name"] == "$job"  # the hook's own, to which it adds these
    assert {*job["resources"]["limits"]} - {"ephemeral-storage"} == set(pod.devices(config))
    assert spec["nodeSelector"] == node(profile).selector
    assert spec.get("tolerations", []) == list(map(dict, node(profile).tolerations))
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("job", False)
    assert not job["securityContext"]["privileged"]
    assert not {"image", "command"} & job.keys()  # they are the workflow's, and the hook's
    # A file that the hook reads: "externals", "work" and "github" are volumes of its own.
    assert {volume["name"] for volume in spec["volumes"]} <= {"shm"}


def test_job_pod_sizes_are_its_requests_and_limits() -> None:
    config = runners(profile="eks-p5", gpus=2, cpu="40", memory="400Gi", shm="128Gi", disk="300Gi")
    spec = job_pods.template(config)["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "40", "memory": "400Gi", "ephemeral-storage": "1Gi"},
        "limits": {GPU: "2", EFA: "8", "hugepages-2Mi": "1280Mi", "memory": "400Gi", "ephemeral-storage": "300Gi"},
    }
    assert spec["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "128Gi"}}]
    assert config.per_node == 4
    assert runners(profile="eks-p5", gpus=1, memory="500Gi").per_node == 4
    assert "memory" not in job_pods.template(runners(profile="eks-p5"))["spec"]["containers"][0]["resources"]["limits"]


def test_step_pod_leaves_the_devices_to_its_job() -> None:
    step = json.loads(job_pods.files(runners(profile="eks-p5"))["data"]["step.json"])
    (container,) = step["spec"]["containers"]
    assert container["resources"]["limits"].keys() == {"ephemeral-storage"}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert "add" not in container["securityContext"]["capabilities"]


def test_namespaces_of_job_pods_have_their_own_limits() -> None:
    config = runners(profile="eks-p5", gpus=4, maxRunners=3)
    of_jobs = {one["kind"]: one for one in job_pods.guarded(config, ())}
    assert {one["metadata"]["namespace"] for one in of_jobs.values()} == {"slipway-runners-jobs"}
    assert of_jobs["ResourceQuota"]["spec"]["hard"] == {
        "pods": "12", "persistentvolumeclaims": "0", f"requests.{GPU}": "24", f"requests.{EFA}": "96",
    }  # fmt: skip
    assert of_jobs["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == pod.labels(config)
    assert isolation.quota(config)["spec"]["hard"] == {
        "pods": "6", "persistentvolumeclaims": "0", f"requests.{GPU}": "0", f"requests.{EFA}": "0",
    }  # fmt: skip
    level = "pod-security.kubernetes.io/enforce"
    for values, runner, job in (
        ({}, "baseline", "baseline"),
        ({"profile": "eks-p5"}, "baseline", "privileged"),  # IPC_LOCK
        ({"profile": "eks-p5", "efa": 0}, "baseline", "baseline"),
        ({"profile": "eks-p5", "validation": {"image": "torch"}}, "privileged", "privileged"),
    ):
        spaces = (isolation.namespace(runners(**values)), job_pods.namespace(runners(**values)))
        assert tuple(one["metadata"]["labels"][level] for one in spaces) == (runner, job), values


def test_job_pod_of_a_build_service_has_its_key() -> None:
    config = runners(profile="eks-p5", build={"jobs": True, "nodeSelector": {"a": "b"}})
    assert config.build
    access = build_service.client(config, config.build)
    spec = job_pods.template(config, access)["spec"]
    assert {"name": "build-client", "secret": {"secretName": "build-client"}} in spec["volumes"]
    env = {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"]}
    assert env["DOCKER_HOST"] == "tcp://build.slipway-runners-build.svc:2376"
    secret = build_service.secret(
        config, dict.fromkeys(("ca", "client_cert", "client_key"), "x"), "client", config.replicas[0]
    )
    assert secret["metadata"]["namespace"] == config.jobs_namespace


def test_runner_of_job_pods_reaches_the_clusters_api() -> None:
    config = runners()
    ports = isolation.ports(config, [5000])
    policies = [
        *isolation.network_policies(config, ports, config.namespace),
        *isolation.network_policies(config, [5000], config.jobs_namespace),
    ]
    runner, job = (Peer("10.0.0.1", space, pod.labels(config)) for space in (config.namespace, config.jobs_namespace))
    api = Peer("192.0.2.1")
    assert allowed(policies, runner, api, 6443)
    assert not allowed(policies, job, api, 6443)
    assert not allowed(policies, job, runner, 443)
    assert allowed(policies, job, Peer("192.0.2.2"), 5000)


@every(
    "values, line",
    [
        ({"daemon": False}, "daemon has no effect, because jobPods is true: leave it out"),
        ({"cache": "10Gi"}, "cache has no effect, because jobPods is true: leave it out"),
        ({"storageClass": "gp3"}, "storageClass has no effect, because jobPods is true: leave it out"),
        ({"dockerImage": "docker:28"}, "dockerImage has no effect, because no Docker daemon runs: leave it out"),
        ({"profile": "eks-p5", "memory": "64Gi"}, "shm 64Gi is in memory, and a job may use 64Gi in all: give more in memory, or less in shm"),
        ({"profile": "eks-g6", "cpu": "193"}, "a job requests 193 CPUs and 16 GiB, and a node of eks-g6 has 192 and 768: give less in cpu and memory"),
        ({"namespace": "ci-jobs"}, "ends with -build, -controller or -jobs, as namespaces of build services, controllers and jobs' pods do: choose another"),
    ],
)  # fmt: skip
def test_job_pods_with_useless_keys_are_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        runners(**values)
    (error,) = caught.value.errors()
    assert error["msg"].removeprefix("Value error, ") == line


DOCKER = {"profile": "eks-p5", "daemon": True, "dockerGpus": True, "dockerImage": "r.example/docker:1"}


def test_docker_beside_a_job_has_its_folders_and_socket() -> None:
    config = runners(profile="eks-p5", gpus=2, daemon=True, cache="10Gi", build={"jobs": True}, maxRunners=3)
    assert config.build
    spec = job_pods.template(config, build_service.client(config, config.build), "r.example/docker:1")["spec"]
    job, docker = spec["containers"]
    assert "initContainers" not in spec  # they would take the place of the hook's own
    env = {entry["name"]: entry["value"] for entry in job["env"]}
    paths = {mount["name"]: mount["mountPath"] for mount in job["volumeMounts"]}
    beside = {mount["name"]: mount["mountPath"] for mount in docker["volumeMounts"]}
    assert env["DOCKER_HOST"] == f"unix://{paths['docker']}/docker.sock"
    assert "BUILD_DOCKER_HOST" in env
    assert "--host=unix:///var/run/docker.sock" in docker["args"]
    assert beside.items() >= {"docker": "/var/run", "work": "/__w", "layers": "/var/lib/docker"}.items()
    assert {"name": "DOCKER_GROUP_GID", "value": str(spec["securityContext"]["fsGroup"])} in docker["env"]
    assert (docker["image"], docker["securityContext"]) == ("r.example/docker:1", {"privileged": True})
    assert not job["securityContext"]["privileged"]
    # A job has no Docker before its daemon answers.
    assert "docker info" in docker["lifecycle"]["postStart"]["exec"]["command"][-1]
    assert "NVIDIA_VISIBLE_DEVICES" not in {entry["name"] for entry in docker["env"]}
    of_jobs = {one["kind"]: one for one in job_pods.guarded(config, ())}
    assert of_jobs["ResourceQuota"]["spec"]["hard"]["persistentvolumeclaims"] == "6"
    assert of_jobs["LimitRange"]["spec"]["limits"][-1] == {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}}
    level = "pod-security.kubernetes.io/enforce"
    assert job_pods.namespace(runners(daemon=True))["metadata"]["labels"][level] == "privileged"
    assert isolation.namespace(runners(daemon=True))["metadata"]["labels"][level] == "baseline"
    assert runners(daemon=True).unpooled == ("nodeSelector",)
    assert runner_of(config)["containers"][0]["name"] == "runner"
    assert "initContainers" not in runner_of(config)
    warm = json.loads(job_pods.files(config)["data"]["warm.json"])["spec"]["containers"]
    assert [{"name": "warm", "mountPath": job_pods.WARM} in each["volumeMounts"] for each in warm] == [True, False]


@every("more", [{}, {"gpuClaim": {}}])
@every("pods", [True, False])
def test_docker_with_gpus_describes_them_to_its_containers(pods: bool, more: dict[str, Any]) -> None:
    config = runners(**DOCKER, jobPods=pods, **more)
    spec = job_pods.template(config)["spec"] if pods else runner_of(config)
    docker = spec["containers"][-1] if pods else spec["initContainers"][-1]
    command = docker["lifecycle"]["postStart"]["exec"]["command"][-1]
    assert "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml" in command
    # The device plugin's are the job's alone; a claim is for each container of its pod.
    seen = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in docker["env"]
    assert (seen, "claims" in docker["resources"]) == (not more, bool(more))
    assert GPU not in docker["resources"]["limits"]


@every(
    "values, line",
    [
        ({**DOCKER, "profile": "cpu"}, "dockerGpus has no effect, because runners of cpu have no GPU: leave it out"),
        ({"profile": "eks-p5", "dockerGpus": True}, "dockerGpus has no effect, because no Docker daemon runs beside a job: leave it out"),
        ({"profile": "eks-p5", "dockerGpus": True, "daemon": True}, "dockerGpus: docker:28.5.2-dind has no nvidia-ctk: give a dockerImage with it, or leave it out"),
        *(
            ({**DOCKER, **part}, "dockerGpus: the Docker daemon is privileged and sees all 8 GPUs of a node of eks-p5, which may be other runners', too: leave out gpus, its other names and gpuClaim.shared, or dockerGpus")
            for part in ({"gpus": 4}, {"gpus": 8, "gpuResource": "nvidia.com/mig-1g.10gb"}, {"gpuClaim": {"shared": True}, "maxRunners": 1})
        ),
    ],
)  # fmt: skip
def test_docker_gpus_that_are_not_all_its_own_are_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        runners(**values)
    assert caught.value.errors()[0]["msg"].removeprefix("Value error, ") == line


def test_stack_without_job_pods_has_one_namespace() -> None:
    config = runners(jobPods=False)
    assert config.jobs_namespace == config.namespace
    assert runner_of(config)["automountServiceAccountToken"] is False
