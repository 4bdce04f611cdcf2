"""Examples that start a job, rendered from a stack."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import yaml

from cli import job as jobs
from cli.main import main
from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.flavors import load, megatron
from stacks.versions.nodes import node
from tests.helpers import kubernetes_schemas
from tests.helpers.every import every

NAME = "megatron-lm"


def rendered(stack: str = "aks-megatron", nodes: int = 2) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(jobs.render(stack, nodes)))


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [replicas["template"]["spec"] for replicas in job["spec"]["pytorchReplicaSpecs"].values()]


def unmounted(pod: dict[str, Any]) -> set[str]:
    """Return the volumes that a pod has or that its containers mount, and not both."""
    containers = (*pod.get("initContainers", ()), *pod["containers"])
    mounts = {mount["name"] for container in containers for mount in container["volumeMounts"]}
    return mounts ^ {volume["name"] for volume in pod["volumes"]}


def options(words: list[str]) -> dict[str, str]:
    """Return the options of a command that have a value."""
    return {word: after for word, after in pairwise(words) if word.startswith("--") and not after.startswith("--")}


@every("nodes", [2, 5])
def test_pytorch_job_has_its_nodes_and_image(nodes: int) -> None:
    [job] = rendered(nodes=nodes)
    assert (job["apiVersion"], job["kind"], job["spec"]["nprocPerNode"]) == ("kubeflow.org/v1", "PyTorchJob", "8")
    replicas = {role: each["replicas"] for role, each in job["spec"]["pytorchReplicaSpecs"].items()}
    assert replicas == {"Master": 1, "Worker": nodes - 1}
    image = plan.make("aks-megatron").references[NAME]
    assert image in jobs.render("aks-megatron", nodes)
    for pod in pods(job):
        assert {each["image"] for each in (*pod["initContainers"], *pod["containers"])} == {image}
        user = pod["securityContext"]
        assert (user["runAsNonRoot"], user["runAsUser"], user["runAsGroup"]) == (True, 1000, 1000)
        words = pod["containers"][0]["command"]
        given = options(words)
        assert given["--nnodes"] == str(nodes)
        assert int(given["--global-batch-size"]) == int(given["--micro-batch-size"]) * nodes * 8
        assert given["--rdzv-endpoint"] == f"{job['metadata']['name']}-master-0:29400"
        assert words[:4] == ["with-profile", "aks-ndv5", "--", "torchrun"]
        assert words[words.index("torchrun") :].index("pretrain_gpt.py") < words.index("--mock-data")
        assert (ROOT / "dockerfiles/megatron/profiles" / words[1]).is_file()


def test_pytorch_job_model_has_the_documented_parameters() -> None:
    """Megatron's defaults: learned positions, biases, two norms a layer and one at the end, tied embeddings."""
    given = options(pods(rendered()[0])[0]["containers"][0]["command"])
    assert not {"--untie-embeddings-and-output-weights", "--swiglu", "--group-query-attention"} & set(given)
    layers, hidden, positions = (
        int(given[f"--{name}"]) for name in ("num-layers", "hidden-size", "max-position-embeddings")
    )
    # NullTokenizer has one word more, the end of a text; and the vocabulary is padded to a multiple of 128.
    words = -(-(int(given["--vocab-size"]) + 1) // 128) * 128
    count = (words + positions) * hidden + layers * (12 * hidden**2 + 13 * hidden) + 2 * hidden
    assert (words, count) == (32128, 337_307_648)
    phrase = f"a GPT of {count // 10**6} million parameters"
    assert phrase in (megatron.job.__doc__ or "")
    assert phrase in " ".join((ROOT / "dockerfiles/megatron/README.md").read_text().split())


def test_pytorch_job_pod_has_a_whole_node_and_few_rights() -> None:
    row = node("aks-ndv5")
    for pod in pods(rendered()[0]):
        assert pod["nodeSelector"] == row.selector
        assert pod["tolerations"] == [dict(each) for each in row.tolerations]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in (*pod["initContainers"], *pod["containers"]):
            limits = {name: str(count) for name, count in row.limits.items()}
            assert container["resources"] == {"requests": limits, "limits": limits}
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
            assert "privileged" not in container["securityContext"]
            assert {"name": "EXPECTED_GPUS", "value": "8"} in container["env"]
        assert pod["volumes"][0]["emptyDir"]["medium"] == "Memory"
        assert not unmounted(pod)


def test_pytorch_job_checks_node_before_and_while_training() -> None:
    for pod in pods(rendered()[0]):
        [check], [training] = pod["initContainers"], pod["containers"]
        assert check["command"] == ["healthcheck", "--compute"]
        assert training["livenessProbe"]["exec"]["command"] == ["healthcheck"]
        assert training["name"] == "pytorch"


def test_pytorch_job_grace_nodes_share_an_nvlink_domain() -> None:
    config = load({"flavor": "megatron", "nodes": "aks-gb300", "platform": "linux/arm64"}, "stack x")
    domain, job = megatron.job(config, {NAME: "r.example/megatron-lm:1"}, 3)  # type: ignore[arg-type]
    assert domain["kind"] == "ComputeDomain"
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    for pod in pods(job):
        assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "Standard_ND128isr_GB300_v6"}
        [claim] = pod["resourceClaims"]
        assert claim["resourceClaimTemplateName"] == template
        assert pod["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]
        assert "aks-gb300" in pod["containers"][0]["command"]
        [together] = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert together["topologyKey"] == "nvidia.com/gpu.clique"
        assert together["labelSelector"] == {"matchLabels": {"job": job["metadata"]["name"]}}


@every(
    "words, message",
    [
        (["local", "--nodes", "0"], "--nodes 0: give 1 or more\n"),
        (["aks-megatron", "--nodes", "1"], "--nodes 1: the example is for several nodes; give 2 or more\n"),
        (["aks-megatrn"], "aks-megatron"),
        (["aks-megatron", "--platform", "linux/amd64"], "--platform is for --slurm: nodes of Kubernetes take"),
        (["runners-eks", "--slurm"], "stack runners-eks builds no image to run; choose a stack that does\n"),
    ],
)
def test_job_mistake_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", *words]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_job_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "aks-megatron-2503"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "PyTorchJob"


@every("stack", ["base-cu132", "nccl-cu132-multi", "vllm-cu130"])
def test_indexed_job_is_valid_and_meets_at_its_first_pod(stack: str) -> None:
    script, service, job = objects = rendered(stack, 3)
    for each in objects:
        for version in ("1.31", "1.35"):
            kubernetes_schemas.validate(each, version)
    name, spec = job["metadata"]["name"], job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (3, 3, "Indexed")
    pod = spec["template"]["spec"]
    assert not unmounted(pod)
    [container] = pod["containers"]
    given = options(container["command"])
    assert given["--nnodes"] == "3"
    assert given["--nproc_per_node"] == container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    # Kubernetes names the pods <job>-<index>, and gives them a name below the Service of their subdomain.
    assert given["--rdzv_endpoint"] == f"{name}-0.{pod['subdomain']}:29400"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert container["command"][-1] == f"{container['volumeMounts'][1]['mountPath']}/train.py"
    compile(script["data"]["train.py"], "train.py", "exec")
    planned = plan.make(stack)
    assert container["image"] in planned.references.values()
    selector = {} if planned.indexes else {"kubernetes.io/arch": "amd64"}
    assert pod.get("nodeSelector", {}) == selector


def test_job_runs_the_image_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Also in place of a flavor's own example."""
    [name] = {image.spec.name for image in plan.make("aks-megatron").images if not image.spec.product}
    assert main(["job", "aks-megatron", name, "--nodes", "3"]) == 0
    objects = {each["kind"]: each for each in yaml.safe_load_all(capsys.readouterr().out)}
    job = objects["Job"]
    assert job["spec"]["completions"] == 3
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == plan.make("aks-megatron").references[name]
    assert main(["job", "aks-megatron", "trainer"]) == 1
    assert "stack aks-megatron" in capsys.readouterr().err
