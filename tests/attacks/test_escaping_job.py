"""A job gets out of its privileged pod: whatever else runs on that node is its prey, and so is the node's disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.warm import warm_hook
from components.runners.kubernetes import build_daemon, job_pods, pod
from containers.errors import SlipwayError
from stacks import plan
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.versions.nodes import node_names

GITHUB = {"url": "https://github.com/acme", "secret": "github"}
POOL = {"acme.example/pool": "ci"}
ANY = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
TAINT = {"key": "acme.example/pool", "value": "ci", "effect": "NoSchedule"}
TAKES_ANY_POD: tuple[dict[str, str], ...] = (
    {**ANY, "kubernetes.io/hostname": "database"},
    {**ANY, "kubernetes.io/hostname": "payments", "acme.example/tier": "production"},
)
"""The labels of nodes of others, without a taint."""


def pods(root: Path, **runners: Any) -> list[dict[str, Any]]:
    """Return the pods that a stack may run, unless it is refused before anything is built."""
    values = {"kind": "kubernetes", "github": GITHUB, **runners}
    try:
        plan.specs({"flavor": "runners", "runners": values}, "stack t", root)
    except SlipwayError as error:
        assert "is privileged, and would run on any node: give the labels of a pool for it alone" in str(error)
        return []
    config = KubernetesRunnersConfig.model_validate(values)
    daemons = (
        [build_daemon.deployment(config, config.build, "docker:1", "digest", config.replicas[0])]
        if config.build
        else []
    )
    jobs = [job_pods.template(config)["spec"]] if config.job_pods else []
    services = [one["spec"]["template"]["spec"] for one in daemons]
    return [pod.template(config, "runner:1", "docker:1")["spec"], *jobs, *services]


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def escapes(spec: dict[str, Any]) -> bool:
    """Tell whether a privileged pod gets onto a node of others."""
    privileged = any(one.get("securityContext", {}).get("privileged") for one in containers(spec))
    return privileged and any(spec["nodeSelector"].items() <= labels.items() for labels in TAKES_ANY_POD)


@pytest.mark.parametrize("profile", node_names())
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"nodeSelector": {"kubernetes.io/os": "linux"}},
        {"nodeSelector": POOL},
        {"build": {"jobs": True}},
        {"nodeSelector": POOL, "build": {"jobs": True, "nodeSelector": {"kubernetes.io/os": "linux"}}},
        {"build": {"jobs": True}, "daemon": False},
        {"nodeSelector": POOL, "build": {"jobs": True, "nodeSelector": POOL, "tolerations": [TAINT]}},
        {"build": {"jobs": True, "rootless": True}, "daemon": False},
        {"jobPods": True, "daemon": True},
        {"jobPods": True, "daemon": True, "nodeSelector": POOL, "tolerations": [TAINT]},
    ],
    ids=str,
)
def test_privileged_pod_stays_off_nodes_of_others(tmp_path: Path, profile: str, more: dict[str, Any]) -> None:
    declared = pods(tmp_path, profile=profile, **more)
    assert not [spec["nodeSelector"] for spec in declared if escapes(spec)]


def test_job_with_docker_stays_off_nodes_with_a_runners_token(tmp_path: Path) -> None:
    """The token of a runner makes privileged pods on any node."""
    values = {"kind": "kubernetes", "github": GITHUB, "nodeSelector": POOL, "jobPods": True, "daemon": True}
    with pytest.raises(
        SlipwayError, match="tolerations: a job has the node of its Docker daemon, and with it the token"
    ):
        plan.specs({"flavor": "runners", "runners": values}, "stack t", tmp_path)
    tainted = {**values, "tolerations": [TAINT]}
    plan.specs({"flavor": "runners", "runners": tainted}, "stack t", tmp_path)
    runner, job = pods(tmp_path, **{key: value for key, value in tainted.items() if key not in {"kind", "github"}})
    assert job["tolerations"]
    assert "tolerations" not in runner


def test_pool_of_another_platform_cannot_name_the_nodes_of_jobs(tmp_path: Path) -> None:
    other = {"nodeSelector": {**POOL, "kubernetes.io/arch": "amd64"}}
    build = {"nodeSelector": {"acme.example/pool": "builds"}, "platforms": {"linux/arm64": other}}
    runners = {"kind": "kubernetes", "github": GITHUB, "nodeSelector": POOL, "build": build}
    keys = {"flavor": "local", "platforms": ["linux/amd64", "linux/arm64"], "publish": False, "buildOn": "runners"}
    with pytest.raises(SlipwayError, match="'amd64': these pods are for linux/arm64: leave it out"):
        plan.specs({**keys, "runners": runners}, "stack t", tmp_path)
    del other["nodeSelector"]["kubernetes.io/arch"]
    plan.specs({**keys, "runners": runners}, "stack t", tmp_path)


@pytest.mark.parametrize("daemon", [True, False])
def test_job_cannot_fill_its_nodes_disk(tmp_path: Path, daemon: bool) -> None:
    build = {"jobs": True, "nodeSelector": POOL}
    declared = pods(tmp_path, daemon=daemon, nodeSelector=POOL, build=build, disk="50Gi")
    assert len(declared) == 2
    for spec in declared:
        assert all("ephemeral-storage" in one["resources"]["limits"] for one in containers(spec))
    (work,) = (volume for spec in declared for volume in spec["volumes"] if volume["name"] == "work")
    assert work["emptyDir"] == {"sizeLimit": "50Gi"}


def test_pool_of_a_stack_reaches_every_pod_of_jobs(tmp_path: Path) -> None:
    pool = {
        "nodeSelector": POOL,
        "tolerations": [TAINT, {"key": "x", "operator": "Exists"}],
        "runtimeClass": "kata-qemu",
    }
    declared = pods(
        tmp_path,
        profile="eks-p5",
        **pool,
        build={**pool, "jobs": True, "nodeSelector": {"acme.example/pool": "builds"}},
    )
    runner, service = declared
    assert runner["nodeSelector"] == {"node.kubernetes.io/instance-type": "p5.48xlarge", **POOL}
    assert runner["tolerations"][1:] == service["tolerations"] == [
        {**TAINT, "operator": "Equal"}, {"key": "x", "operator": "Exists"},
    ]  # fmt: skip
    assert service["nodeSelector"] == {**ANY, "acme.example/pool": "builds"}
    assert runner["runtimeClassName"] == service["runtimeClassName"] == "kata-qemu"


def test_missing_pools_are_refused_in_a_line_each(tmp_path: Path) -> None:
    values = {"flavor": "runners", "runners": {"kind": "kubernetes", "github": GITHUB, "build": {"jobs": True}}}
    with pytest.raises(SlipwayError) as caught:
        plan.specs(values, "stack t", tmp_path)
    assert [line.partition(": ")[2].partition(": ")[0] for line in str(caught.value).splitlines()] == [
        "slipway:runners.nodeSelector", "slipway:runners.build.nodeSelector",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "label",
    [
        {"topology.kubernetes.io/zone": "eu-west-1a"},
        {"failure-domain.beta.kubernetes.io/region": "eu-west-1"},
        {"kubernetes.io/hostname": "database"},
        {"node.kubernetes.io/instance-type": "m7i.4xlarge"},
        {"beta.kubernetes.io/instance-type": "m7i.4xlarge"},
        {"karpenter.sh/capacity-type": "spot"},
        {"karpenter.k8s.aws/instance-family": "m7i"},
        {"eks.amazonaws.com/capacityType": "SPOT"},
        {"kubernetes.azure.com/mode": "user"},
        {"kubernetes.azure.com/scalesetpriority": "spot"},
        {"cloud.google.com/gke-spot": "true"},
        {"feature.node.kubernetes.io/cpu-cpuid.AVX2": "true"},
        {"topology.disk.csi.azure.com/zone": "westeurope-1"},
        {"eks.amazonaws.com/instance-category": "m"},
        {"alpha.eksctl.io/cluster-name": "prod"},
        {"karpenter.sh/registered": "true"},
        {"kubernetes.azure.com/node-image-version": "AKSUbuntu-2204"},
        {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        {"vpc.amazonaws.com/has-trunk-attached": "true"},
    ],
)
def test_property_that_nodes_of_others_have_is_no_pool(tmp_path: Path, label: dict[str, str]) -> None:
    assert pods(tmp_path, profile="cpu", nodeSelector={**ANY, **label}) == []
    assert pods(tmp_path, profile="cpu", nodeSelector={**POOL, **label}), "a pool in one zone is a pool"


@pytest.mark.parametrize(
    "label",
    ["karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool",
     "cloud.google.com/gke-nodepool", "node-restriction.kubernetes.io/pool", "node-role.kubernetes.io/ci"],
)  # fmt: skip
def test_pool_that_a_cloud_names_is_a_pool(tmp_path: Path, label: str) -> None:
    assert pods(tmp_path, profile="cpu", nodeSelector={label: "ci"})


COPIES = """'use strict'
const fs = require('fs')
const path = require('path')
const [cwd, wanted] = [process.env.COPIED, process.env.WANTED]
// tar-fs 3.1 (extract.js): a link is judged by its text, and a file is written by way of a link of its name.
const link = (target, name, next) => {
  const place = path.resolve(path.dirname(name), target)
  if (place !== cwd && !place.startsWith(cwd + path.sep)) throw new Error('not a valid symlink')
  fs.symlink(target, name, next)
}
const up = 'l/'.repeat(30) + '../'.repeat(30)
link('.', path.join(cwd, 'l'), () => link(up, path.join(cwd, 'm'), () =>
  link('m' + wanted, path.join(cwd, 'step_summary'), () => {
    try { console.log(fs.readFileSync(path.join(cwd, 'step_summary'), 'utf8')) } catch {}
    try { fs.writeFileSync(path.join(cwd, 'step_summary'), 'planted') } catch {}
    console.log(fs.readlinkSync(path.join(cwd, 'm')))
    process.stdin.on('data', part => console.log(JSON.parse(part).state.jobPod))
  })))
"""
"""In place of GitHub's hook: it copies links of a job's archive, and says which pod the step would run in."""


@pytest.mark.skipif(shutil.which("node") is None, reason="the hook is a program of Node.js")
def test_job_reaches_nothing_by_what_the_hook_copies(tmp_path: Path) -> None:
    hook = job_pods.files(
        KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, "jobPods": True})
    )
    text = hook["data"]["hook.js"].replace("/home/runner/k8s-novolume", str(tmp_path))
    (tmp_path / "hook.js").write_text(text)
    (tmp_path / "index.js").write_text(COPIES)
    (copied := tmp_path / "_temp").mkdir()
    (token := tmp_path / "token").write_text("the runner's token")
    # The runner saves this state from the answer's file, which the job has written to.
    given = {"command": "run_script_step", "args": {}, "state": {"jobPod": "other-workflow"}}
    variables = {
        "ACTIONS_RUNNER_POD_NAME": "own",
        "COPIED": str(copied),
        "WANTED": str(token),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        ["node", str(tmp_path / "hook.js")], input=f"{json.dumps(given)}\n", env=variables, check=True, timeout=60,
        text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["./", "own-workflow"]
    assert token.read_text() == "the runner's token"


@pytest.mark.skipif(shutil.which("node") is None, reason="the hook is a program of Node.js")
@pytest.mark.parametrize(
    ("container", "template"),
    [
        ({"environmentVariables": {"SLIPWAY_WARM": "pod"}}, "warm.json"),
        ({"environmentVariables": {"OTHER": "1"}}, "job.json"),
        ({}, "job.json"),
        (None, "job.json"),
    ],
)
def test_job_that_warms_gets_an_empty_folder_alone(tmp_path: Path, container: object, template: str) -> None:
    """Any job may ask for it: it is in its own pod, and nothing of a node's."""
    config = KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, "jobPods": True})
    files = job_pods.files(config)["data"]
    text = files["hook.js"].replace("/home/runner/k8s-novolume", str(tmp_path))
    (tmp_path / "hook.js").write_text(text)
    (tmp_path / "index.js").write_text("console.log(process.env.ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE)")
    variables = {
        "ACTIONS_RUNNER_POD_NAME": "own", "PATH": os.environ["PATH"],
        "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE": "/jobs/job.json",
    }  # fmt: skip
    given = json.dumps({"command": "prepare_job", "args": {"container": container}})
    done = subprocess.run(
        ["node", str(tmp_path / "hook.js")], input=f"{given}\n", env=variables, check=True, timeout=60, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert Path(done.stdout.strip()).name == template
    job, warm = (json.loads(files[name])["spec"] for name in ("job.json", "warm.json"))
    [volume] = [each for each in warm["volumes"] if each not in job["volumes"]]
    assert volume == {"name": "warm", "emptyDir": {}}
    [mount] = [
        each
        for each in warm["containers"][0]["volumeMounts"]
        if each not in job["containers"][0].get("volumeMounts", [])
    ]
    assert mount == {"name": "warm", "mountPath": warm_hook.ROOT}
    unchanged = {**warm, "volumes": job["volumes"], "containers": job["containers"]}
    assert unchanged == job
