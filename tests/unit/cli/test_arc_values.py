"""``slipway new --from``: what ARC's values say becomes a stack, and what a stack cannot take is named."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import change
from cli.keys import new_stack
from cli.keys.arc_values import arc_values
from cli.main import main
from containers.errors import SlipwayError
from stacks import flavors
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_file import ROOT, stack_file
from tests.helpers.every import every

PYTORCH = Path(__file__).parent / "arc_values/pytorch.yaml"
DIND: dict[str, Any] = {
    "githubConfigUrl": "https://github.com/acme/images",
    "githubConfigSecret": {"github_token": "ghp_hunter2"},
    "minRunners": 1,
    "maxRunners": 3,
    "scaleSetLabels": ["gpu"],
    "containerMode": {"type": "dind"},
    "template": {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "terminationGracePeriodSeconds": 3600,
            "nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"operator": "Exists"},
            ],
            "runtimeClassName": "nvidia",
            "imagePullSecrets": [{"name": "x"}],
            "containers": [
                {
                    "name": "runner",
                    "image": "ghcr.io/acme/runner:2.335.1",
                    "resources": {"requests": {"cpu": "8"}, "limits": {"nvidia.com/gpu": 4}},
                }
            ],
        },
    },
}


def translated(path: Path, profile: str = "") -> tuple[KubernetesRunnersConfig, list[str]]:
    values, left = arc_values(path, profile)
    config = flavors.load(values, "stack mine").runners
    assert isinstance(config, KubernetesRunnersConfig)
    return config, left


def dind(folder: Path, **more: Any) -> Path:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump({**DIND, **more}))
    return path


def test_runner_of_pytorch_is_taken_but_for_what_is_named() -> None:
    config, left = translated(PYTORCH, "eks-p5")
    assert (config.github.url, config.github.secret) == ("https://github.com/pytorch", "meta-prod-aws-uw1")
    assert config.scale_set == "mt-l-x86iamx-22-225-h100"
    assert (config.profile, config.devices["nvidia.com/gpu"], config.job_pods) == ("eks-p5", 1, True)
    assert (config.cpu, config.memory, config.disk, config.shm) == ("22", "225Gi", "200Gi", "2Gi")
    assert (config.min_runners, config.max_runners, config.group) == (0, 48, "meta-prod-aws-uw1")
    assert (config.per_node, config.image) == (8, "ghcr.io/actions/actions-runner:2.333.1")
    assert config.arc.controller
    assert config.arc.controller.name == "arc-systems/arc-gha-rs-controller"
    assert config.arc.values
    listener = config.arc.values.runners["listenerTemplate"]["spec"]
    assert (listener["tolerations"][0]["value"], listener["containers"][0]["name"]) == ("true", "listener")
    assert config.arc.values.runners["listenerMetrics"]["histograms"]
    assert [each.key for each in config.tolerations] == ["node-fleet", "instance-type"]  # the profile has the GPUs'
    assert [line.partition(": ")[0] for line in left] == [
        "template.metadata",
        "template.spec.serviceAccountName",
        "template.spec.priorityClassName",
        "template.spec.nodeSelector",
        "template.spec.tolerations",
        "template.spec.initContainers",
        "template.spec.containers.runner.command",
        "template.spec.containers.runner.env",
        "template.spec.containers.runner.resources",
        "template.spec.containers.runner.volumeMounts",
        "template.spec.volumes",
        "job.serviceAccountName",
        "job.automountServiceAccountToken",
        "job.priorityClassName",
        "job.schedulerName",
        "job.affinity",
        "job.containers.$job.env",
        "job.containers.$job.volumeMounts",
        "job.volumes",
        "job.metadata",
    ]


DEFINITION = """name instance_type disk_size vcpu memory gpu max_runners node_fleet runner_class proactive_capacity
    max_burst_capacity hud_failure_base_capacity imex_channels"""
"""All settings of PyTorch's definitions of runners (pytorch/ci-infra at b1ce4a60, osdc/modules/arc-runners*/defs)."""


def test_page_has_a_line_for_each_setting_of_pytorch() -> None:
    section = (ROOT / "docs/runners/from-arc.md").read_text().partition("## PyTorch's runner")[2]
    named = re.findall(r"^\| `([\w.$-]+)` \| .+ \|$", section.partition("## ")[0], flags=re.MULTILINE)
    assert named == [*DEFINITION.split(), *(line.partition(": ")[0] for line in translated(PYTORCH, "eks-p5")[1])]


@pytest.mark.parametrize("seconds", ["30", "90", "86460"])
def test_grace_of_no_whole_minutes_is_named(tmp_path: Path, seconds: str) -> None:
    config, left = translated(dind(tmp_path, template={"spec": {"terminationGracePeriodSeconds": seconds}}))
    assert "template.spec.terminationGracePeriodSeconds: `grace` takes whole minutes, from 1 to 1440" in left
    assert config.grace == KubernetesRunnersConfig.model_fields["grace"].default


VLLM = """aws_region vpc_id subnet_ids prefix github_app webhook_lambda_zip runners_lambda_zip
    runner_binaries_syncer_lambda_zip enable_organization_runners runner_group_name runner_extra_labels runner_os
    runner_architecture instance_types instance_target_capacity_type enable_ephemeral_runners enable_job_queued_check
    runners_maximum_count pool_runner_owner pool_config idle_config minimum_running_time_in_minutes
    scale_down_schedule_expression enable_ssm_on_runners job_retry ami userdata_template runner_run_as
    enable_cloudwatch_agent"""
"""What vLLM sets of its runners' module (vllm-project/ci-infra at 3e4cfe4b, terraform/github-runners/main.tf:53-122)."""


def test_page_has_a_key_or_a_reason_for_each_setting_of_vllm() -> None:
    section = (ROOT / "docs/runners/from-arc.md").read_text().partition("## vLLM's runners")[2]
    machines, pods = section.split("vLLM's GPU tests")
    named = partial(re.findall, r"^\| `([\w.-]+)` \| (.+) \|$", flags=re.MULTILINE)
    assert [setting for setting, _ in named(machines)] == VLLM.split()
    for rows, kind in ((named(machines), Ec2RunnersConfig), (named(pods), KubernetesRunnersConfig)):
        keys = {field.alias or name for name, field in kind.model_fields.items()}
        for setting, place in rows:
            assert place.startswith(("no key", "likewise")) or place.split("`")[1].partition(".")[0] in keys, setting


def test_runner_with_docker_is_taken_without_its_credential(tmp_path: Path) -> None:
    config, left = translated(dind(tmp_path))
    assert (config.own_daemon, config.profile, config.devices["nvidia.com/gpu"]) == (True, "eks-p5", 4)
    assert (config.image, config.grace, config.runtime_class) == ("ghcr.io/acme/runner:2.335.1", 60, "nvidia")
    assert (config.github.secret, config.labels, config.tolerations) == ("github", ("gpu",), ())
    names = {line.partition(": ")[0] for line in left}
    assert names == {
        "githubConfigSecret",
        "template.metadata",
        "template.spec.tolerations",
        "template.spec.containers.runner.resources",
    }
    assert config.pull_secrets == ("x",)
    assert "hunter2" not in str(left)


NOVOLUME = """
githubConfigUrl: https://github.com/acme
containerMode: {type: kubernetes-novolume}
template:
  metadata: {labels: {team: ml}}
  spec:
    priorityClassName: ci
    containers: [{name: runner, env: [{name: ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER, value: "false"}]}]
---
kind: ConfigMap
data:
  content: |
    metadata: {annotations: {a: b}}
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: node.kubernetes.io/instance-type, operator: In, values: [%s]}
                  - {key: acme.example/pool, operator: In, values: [ci]}
      containers:
        - name: $job
          resources:
            limits: {%s: 2, %s, cpu: "20", memory: 200Gi, hugepages-2Mi: 640Mi}
            requests: {cpu: "0.5", memory: 100Gi}
          volumeMounts: [{name: shm, mountPath: /dev/shm}, {name: git, mountPath: /git}]
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 48Gi}}, {name: git, hostPath: {path: /git}}]
"""


@every(
    "machine, gpus, fabric, resources",
    [
        ("p5.48xlarge", "nvidia.com/mig-3g.40gb", "vpc.amazonaws.com/efa: 4", {"vpc.amazonaws.com/efa": 4}),
        ("Standard_ND96isr_H100_v5", "nvidia.com/gpu.shared", "rdma/shared_ib: 1", {"rdma/shared_ib": 1}),
    ],
)
def test_job_has_its_parts_of_gpus_its_fabric_and_shm(
    tmp_path: Path, machine: str, gpus: str, fabric: str, resources: dict[str, int]
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(NOVOLUME % (machine, gpus, fabric))
    config, left = translated(path)
    assert config.resources == {gpus: 2, **resources}
    assert (config.cpu, config.memory, config.shm) == ("500m", "200Gi", "48Gi")
    assert config.node_selector == {"acme.example/pool": "ci"}
    assert [line.partition(": ")[0] for line in left] == [
        "template.metadata",
        "template.spec.priorityClassName",
        "template.spec.containers.runner.env",
        "job.containers.$job.resources.limits.cpu",
        "job.containers.$job.resources.limits.hugepages-2Mi",
        "job.containers.$job.resources.requests.memory",
        "job.containers.$job.volumeMounts",
        "job.volumes",
        "job.metadata",
        "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER",
    ]
    assert not [line for line in left if line.endswith("no key of Slipway's takes it")]


def test_devices_without_a_type_of_node_ask_for_it(tmp_path: Path) -> None:
    spec = {key: value for key, value in DIND["template"]["spec"].items() if key != "nodeSelector"}
    path = dind(tmp_path, template={"spec": spec})
    with pytest.raises(SlipwayError, match="has gpus, .*give runners.profile=NAME after the file, such as eks-p5"):
        arc_values(path)
    values, _ = arc_values(path, "eks-p4d")
    assert (values["runners"]["profile"], values["runners"]["gpus"]) == ("eks-p4d", "4")


def test_daemon_beside_a_runner_has_its_size_and_image(tmp_path: Path) -> None:
    size = {"requests": {"cpu": "2", "memory": "8Gi"}}
    daemon = {"name": "dind", "image": "docker:28.5.2-dind", "args": ["dockerd", "--mtu=1400"], "resources": size}
    spec = DIND["template"]["spec"]
    config, left = translated(dind(tmp_path, template={"spec": {**spec, "containers": [*spec["containers"], daemon]}}))
    assert (config.cpu, config.memory, config.docker_image) == ("2", "8Gi", "docker:28.5.2-dind")
    (line,) = (each for each in left if each.startswith("template.spec.containers.dind: "))
    assert "`network`" in line


def test_every_value_is_taken_or_named(tmp_path: Path) -> None:
    """A value that no key takes has a line with its name, whatever it is."""
    listener = {"name": "listener", "env": [{"name": "A_TOKEN", "value": "hunter2"}]}
    for key, value in (
        ("proxy", {"http": {"url": "http://me:hunter2@p"}}),
        ("unheard", {"of": 1}),
        ("controllerServiceAccount", {"name": "x"}),
        ("listenerTemplate", {"spec": {"securityContext": {"runAsNonRoot": False}}}),
        ("listenerTemplate", {"spec": {"containers": [listener]}}),
    ):
        config, left = translated(dind(tmp_path, **{key: value}))
        assert config.arc.values is None
        assert any(line.startswith(key) for line in left), (key, left)


def test_claims_of_gpus_are_named_with_their_key(tmp_path: Path) -> None:
    spec = {**DIND["template"]["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}]}
    _, left = translated(dind(tmp_path, template={"spec": spec}))
    (line,) = (line for line in left if line.startswith("template.spec.resourceClaims: "))
    assert line.endswith("give `gpuClaim`")


def test_values_without_a_key_of_ours_are_passed_on(tmp_path: Path) -> None:
    more = {
        "proxy": {"https": {"url": "http://p:3128"}, "noProxy": ["acme.example"]},
        "githubServerTLS": {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}},
        "listenerMetrics": {"histograms": {"gha_job_startup_duration_seconds": {"buckets": [0.5, 60.0]}}},
        "annotations": {"x": "y"},
    }
    config, left = translated(dind(tmp_path, **more))
    assert config.arc.values
    assert config.arc.values.runners == more
    assert config.extra_ports == (3128,)
    assert not [line for line in left if line.startswith((*more,))]


def test_values_of_a_merged_block_are_taken_as_text(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(
        "githubConfigUrl: https://github.com/acme\ngithubConfigSecret: s\nsizes: &sizes {minRunners: 1, maxRunners: 010}\n"
        "<<: *sizes\ntemplate: {spec: {containers: [{name: fluent, image: fluent/fluent-bit:3.0}]}}\n"
    )
    values, left = arc_values(path)
    assert (values["runners"]["minRunners"], values["runners"]["maxRunners"]) == ("1", "010")
    assert left == [
        f"{key}: no key of Slipway's takes it"
        for key in ("sizes.minRunners", "sizes.maxRunners", "template.spec.containers.fluent.image")
    ]
    path.write_text("githubConfigUrl: https://github.com/acme\ngithubConfigSecret: s\nother: <<x\n")
    assert arc_values(path)[1] == ["other: no key of Slipway's takes it"]


@every(
    "text, line",
    [
        ("a: [", "is not YAML"),
        ("a: b", "expected one document with githubConfigUrl"),
        ("- a", "expected one document with githubConfigUrl"),
        ("githubConfigUrl: x\n---\ngithubConfigUrl: y", "it has 2"),
        ("githubConfigUrl: x\nscaleSetLabels: {a: b}\ntemplate: {spec: {tolerations: x}}", "has another shape than values"),
        ("githubConfigUrl: x\ncontainerMode: {type: [a]}", "has another shape than values"),
        ("githubConfigUrl: x\na: &a {" + ", ".join(f"k{n}: v" for n in range(99)) + "}\nb: &b {" + ", ".join(f"k{n}: *a" for n in range(99)) + "}\nc: {" + ", ".join(f"k{n}: *b" for n in range(99)) + "}", "has another shape than values"),
    ],
)  # fmt: skip
def test_file_without_the_charts_values_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(text)
    with pytest.raises(SlipwayError) as caught:
        arc_values(path)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_new_from_values_writes_a_stack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stacks").mkdir()
    monkeypatch.setattr(new_stack, "write", partial(new_stack.write, root=tmp_path))
    monkeypatch.setattr(change, "ROOT", tmp_path)
    typed = {
        "containers": [{"name": "listener", "env": [{"name": "A", "value": "true"}], "tty": True}],
        "deadline": 1.0,
    }
    values = dind(tmp_path, listenerTemplate={"spec": typed})
    assert main(["new", "mine", "--from", str(values), "runners.gpus=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = yaml.safe_load(stack_file("mine", tmp_path).read_text())["config"]["slipway:runners"]
    assert written["arc"]["values"]["runners"]["listenerTemplate"]["spec"] == typed
    assert (written["gpus"], written["profile"]) == (2, "eks-p5")
    assert [line.startswith("not taken: ") for line in lines] == [True] * 4 + [False]
    assert main(["new", "x", "--from", str(tmp_path / "none")]) == 1
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
