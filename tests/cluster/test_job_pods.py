"""Jobs in pods of their own on a real node: a runner's pod starts the hook, which makes the job's pod from our template.

The hook is a stand-in, and GitHub's own (``k8s-novolume/index.js`` of GitHub's runner) where a developer has it: its steps
run, too, and what a job does to its runner by way of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from containers.image.gpu.node_labels import GPU
from stacks.versions.nodes import INFINIBAND, node
from tests.cluster.conftest import STORAGE, ClusterProject
from tests.cluster.control_plane import Cluster, control_plane, until
from tests.cluster.machine import GATEWAY, IMAGE, NODE, Machine, build, engine, machine
from tests.cluster.programs import program
from tests.cluster.test_runners import POLICY, SETS
from tests.fakes.kubernetes.load_balancer import relay
from tests.helpers.free_port import free_port
from tests.provider.plugin import CHECKOUT

pytestmark = pytest.mark.slow

VARIABLE = "SLIPWAY_CONTAINER_HOOK"
"""Environment variable that names GitHub's ``index.js``, to be tested as well."""
HOOKS = [
    str(CHECKOUT / "tests/fakes/kubernetes/job_hook.js"),
    *([os.environ[VARIABLE]] if VARIABLE in os.environ else []),
]

RUNNER = "slipway.test/hook-runner:{}"
DOCKERFILE = f"""FROM {IMAGE}
RUN apt-get update -q && apt-get install -q -y --no-install-recommends nodejs && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1001 --create-home runner && mkdir -p /home/runner/externals/node20 && chown -R runner /home/runner
COPY run.sh /home/runner/run.sh
COPY index.js /home/runner/k8s-novolume/index.js
"""
"""In place of GitHub's runner: what starts its hook."""
RUN = """#!/bin/bash
trap 'exit 143' INT TERM
until [ -e /home/runner/job ]; do sleep 0.2; done
(exec -a Runner.Worker sleep infinity) & wait
exit 0
"""
"""As GitHub's: a job has a process of its own, TERM ends both, and so does the end of the job."""

WORK = "/home/runner/_work"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
PROFILE = "aks-ndv5"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Machine]]:
    """A cluster with a real node of the profile, which offers one GPU, and one InfiniBand device."""
    (base,) = json.loads(os.environ["SLIPWAY_MIRRORS"])["images"].values()
    image = build(f"{base}:bookworm-slim")
    with control_plane(tmp_path_factory.mktemp("cluster"), GATEWAY) as cluster:
        cluster.call("POST", "/apis/storage.k8s.io/v1/storageclasses", STORAGE)
        with machine(cluster, image) as its_node:
            cluster.call(
                "PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": node(PROFILE).selector}}, headers=MERGE
            )
            capacity = {"status": {"capacity": {GPU: "1", INFINIBAND: "1"}}}
            cluster.call("PATCH", f"/api/v1/nodes/{NODE}/status", capacity, headers=MERGE)
            until(lambda: cluster.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"].get(GPU) == "1")
            its_node.ctr("images", "tag", image, "slipway.test/gha-runner-scale-set-controller:0.0.1")
            yield cluster, its_node


class JobsProject(ClusterProject):
    """A project whose runners make pods for their jobs."""

    def deploy(self, image: str, **more: Any) -> None:
        """Have runners of an image; ``more`` keys take the place of their devices."""
        small = {"profile": PROFILE, "jobPods": True, "image": image, "cpu": "100m", "memory": "512Mi", "shm": "64Mi"}
        devices = more or {"gpus": 1, "infiniband": 1, "maxRunners": 2}
        self.configure({**small, **devices}, mirrors={"images": {"ghcr.io/actions": "slipway.test"}})
        self.up()


class Runner:
    """A runner's pod, and its worker, which starts the hook."""

    def __init__(self, project: ClusterProject, name: str, server: str) -> None:
        self.project, self.name = project, name
        (scale_set,) = project.cluster.items(project.at("autoscalingrunnersets", api=SETS))
        template = scale_set["spec"]["template"]
        (container,) = template["spec"]["containers"]
        host, _, port = server.partition(":")
        # No address of a service leads anywhere here.
        container["env"] += [
            {"name": "KUBERNETES_SERVICE_HOST", "value": host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": port},
        ]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **template["metadata"]},
            "spec": {"restartPolicy": "Never", **template["spec"]},
        }
        project.cluster.call("POST", f"{project.at('pods')}?fieldValidation=Strict", pod)
        until(lambda: self.pod["status"]["phase"] == "Running", description=f"{name} runs")

    @property
    def pod(self) -> dict[str, Any]:
        return self.project.cluster.get(self.project.at("pods", self.name))

    @property
    def job(self) -> dict[str, Any]:
        """The job's pod."""
        return self.project.cluster.get(self.project.at("pods", f"{self.name}-workflow", of="-jobs"))

    @property
    def ended(self) -> int | None:
        """The exit status of the runner; None while it runs."""
        (container,) = self.pod["status"]["containerStatuses"]
        status: int | None = container["state"].get("terminated", {}).get("exitCode")
        return status

    def why_unscheduled(self) -> str:
        """Return why the job's pod has no node; nothing while it is not there, or has one."""
        for pod in self.project.cluster.items(self.project.at("pods", of="-jobs")):
            if pod["metadata"]["name"] == f"{self.name}-workflow":
                return " ".join(each.get("message", "") for each in pod["status"].get("conditions", ()))
        return ""

    def run(self, script: str, given: str = "", *, inside: bool = False) -> str:
        """Run a script in the runner's container, or inside of the job's; return what it prints."""
        pod, space = (self.name, "") if not inside else (f"{self.name}-workflow", "-jobs")
        kubectl = [str(program("kubectl")), "--kubeconfig", str(self.project.cluster.kubeconfig)]
        command = [*kubectl, "exec", "--stdin", "--namespace", f"{self.project.namespace}{space}", pod, "--"]
        done = subprocess.run(
            [*command, "bash", "-c", script], check=False, input=given, text=True, capture_output=True, timeout=300
        )
        return f"{done.stdout}{done.stderr}exit {done.returncode}\n"

    def hook(self, command: str, args: Any, *, hook: str = "$ACTIONS_RUNNER_CONTAINER_HOOKS", path: str = "") -> str:
        """Start the hook as GitHub's runner does; ``path`` is what the job's steps put first on PATH."""
        given = {
            "command": command,
            "responseFile": f"{WORK}/_temp/answer.json",
            "state": {"jobPod": f"{self.name}-workflow"},
            "args": args,
        }
        script = f"""mkdir -p {WORK}/repo/repo {WORK}/_temp/_github_home {WORK}/_temp/_github_workflow \\
            {WORK}/_temp/_runner_file_commands; : > {WORK}/_temp/answer.json
            export RUNNER_WORKSPACE={WORK}/repo GITHUB_WORKSPACE={WORK}/repo/repo RUNNER_TEMP={WORK}/_temp
            export PATH={path}$PATH; timeout 120 /usr/bin/node {hook}"""
        return self.run(script, json.dumps(given) + "\n")

    def prepare(self, **container: Any) -> str:
        return self.hook(
            "prepare_job", {"container": {"image": IMAGE, "workingDirectory": "/__w/repo/repo", **container}}
        )

    def waits_for(self, resource: str) -> None:
        """Have a job that waits for devices until it is given up."""
        stopped = f"{WORK}/stopped"
        hook = f"$ACTIONS_RUNNER_CONTAINER_HOOKS <&0 & until [ -e {stopped} ]; do sleep 1; done; kill %1; :"
        with ThreadPoolExecutor() as pool:
            waits = pool.submit(self.hook, "prepare_job", {"container": {"image": IMAGE}}, hook=hook)
            try:
                until(lambda: f"Insufficient {resource}" in self.why_unscheduled(), description="the job waits")
            finally:
                self.run(f"touch {stopped}")
            assert waits.result().endswith("exit 0\n"), waits.result()
        assert self.hook("cleanup_job", {}).endswith("exit 0\n")

    def step(self, script: str, **options: str) -> str:
        """Run a step of the job by GitHub's hook."""
        (self.project.root / "step").write_text(script)
        self.run(f"mkdir -p {WORK}/_temp; cat > {WORK}/_temp/step.sh", script)
        args = {
            "entryPoint": "bash",
            "entryPointArgs": ["-e", "/__w/_temp/step.sh"],
            "environmentVariables": {},
            "prependPath": [],
            "workingDirectory": "/__w/repo/repo",
        }
        return self.hook("run_script_step", args, **options)


@pytest.fixture(params=HOOKS, ids=["stand-in", "GitHub's"][: len(HOOKS)])
def runners(
    request: pytest.FixtureRequest, tmp_path: Path, site: tuple[Cluster, Machine]
) -> Iterator[tuple[JobsProject, str, bool]]:
    """A project whose runners have a hook, the address of the cluster for pods, and whether the hook is GitHub's own."""
    cluster, its_node = site
    own = request.param != HOOKS[0]
    image = RUNNER.format("official" if own else "stand-in")
    with tempfile.TemporaryDirectory() as context:
        Path(context, "Dockerfile").write_text(DOCKERFILE)
        Path(context, "run.sh").write_text(RUN)
        Path(context, "run.sh").chmod(0o755)
        Path(context, "index.js").write_bytes(Path(request.param).read_bytes())
        engine().images.build(path=context, tag=image, rm=True)
    its_node.load(image)
    project = JobsProject(tmp_path / "project", cluster, f"j{free_port()}")
    project.add_stack()
    project.deploy(image)
    with relay(lambda: ("127.0.0.1", cluster.port), GATEWAY) as server:
        yield project, server, own
    for space in ("-jobs", ""):
        for pod in cluster.items(project.at("pods", of=space)):
            path = project.at("pods", pod["metadata"]["name"], of=space)
            cluster.session.delete(f"{cluster.server}{path}?gracePeriodSeconds=1", timeout=30)
    project.destroy()
    left = {entry["metadata"]["name"] for entry in cluster.items("/api/v1/namespaces")}
    assert not [name for name in left if name.startswith(project.namespace)]


def test_job_pod_has_what_the_runner_has_not(runners: tuple[JobsProject, str, bool]) -> None:
    project, server, own = runners
    cluster = project.cluster
    first, second = (Runner(project, name, server) for name in ("first", "second"))
    assert GPU not in json.dumps(first.pod["spec"])
    prepared = first.prepare()
    assert prepared.endswith("exit 0\n"), prepared
    assert (
        json.loads(first.run(f"cat {WORK}/_temp/answer.json").partition("exit")[0])["state"]["jobPod"]
        == "first-workflow"
    )
    job = first.job
    assert (job["spec"]["nodeName"], job["status"]["phase"]) == (NODE, "Running")
    (container,) = job["spec"]["containers"]
    assert container["image"] == IMAGE
    limits = {GPU: "1", INFINIBAND: "1", "memory": "512Mi", "ephemeral-storage": "2Gi"}
    assert container["resources"]["limits"] == limits
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["NET_RAW"]}
    assert job["spec"]["serviceAccountName"] == "job"
    inside = first.run(
        f"df --output=size --block-size=1M /dev/shm | tail -n 1; ls {TOKEN} 2>&1; "
        "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null",
        inside=True,
    )
    assert [line.strip() for line in inside.splitlines()][:3:2] == ["64", str(512 * 1024**2)], inside
    assert f"cannot access '{TOKEN}'" in inside
    second.waits_for(GPU)  # which the other job has
    # The volumes of a container would be folders of the runner, such as that with its token.
    volume = {"sourceVolumePath": TOKEN, "targetVolumePath": "/token", "readOnly": True}
    stolen = second.prepare(userMountVolumes=[volume])
    assert "::error::container.volumes" in stolen
    assert stolen.endswith("exit 1\n")
    if own:
        steps_of_github(first)
    cleaned = first.hook("cleanup_job", {})
    assert cleaned.endswith("exit 0\n"), cleaned
    until(lambda: not cluster.items(project.at("pods", of="-jobs")))


def steps_of_github(runner: Runner) -> None:
    """Steps run in the job's pod by GitHub's own hook, and what they leave runs nowhere else."""
    ran = runner.step("echo hello of $(hostname); ls /__e")
    assert "hello of first-workflow" in ran, ran
    assert "node20" in ran
    # A folder that the hook copies from the job to the runner, first on PATH: the hook starts `sh`.
    trap = '#!/bin/bash\ntouch /home/runner/trapped\nexec /bin/sh "$@"\n'
    planted = f"printf %s '{trap}' > /__w/_temp/_runner_file_commands/sh; chmod +x /__w/_temp/_runner_file_commands/sh"
    assert runner.step(planted).endswith("exit 0\n")
    first_on_path = f"{WORK}/_temp/_runner_file_commands:"
    assert runner.step("true", path=first_on_path).endswith("exit 0\n")
    assert "trapped" not in runner.run("ls /home/runner")
    alone = runner.step("true", path=first_on_path, hook="/home/runner/k8s-novolume/index.js")
    assert "trapped" in runner.run("ls /home/runner"), alone  # without ours, a job's program runs beside the token


def test_drain_takes_idle_runners_and_waits_for_jobs(runners: tuple[JobsProject, str, bool]) -> None:
    project, server, _ = runners
    cluster = project.cluster
    _, busy = (Runner(project, name, server) for name in ("idle", "busy"))
    kept = {"metadata": {"finalizers": ["acme.example/seen"]}}  # its end can be read then
    cluster.call("PATCH", project.at("pods", "busy"), kept, headers=MERGE)
    busy.run("touch /home/runner/job")
    assert busy.prepare().endswith("exit 0\n")
    for space in ("", "-jobs"):
        name = "jobs-runners" if space else "runners"
        budget = project.at("poddisruptionbudgets", name, POLICY, of=space)
        until(lambda path=budget: cluster.get(path)["status"].get("currentHealthy") == 1, description=f"{name} counts")
    kubectl = [str(program("kubectl")), "--kubeconfig", str(cluster.kubeconfig)]
    drain = subprocess.Popen(
        [
            *kubectl,
            "drain",
            NODE,
            "--force",
            "--delete-emptydir-data",
            "--pod-selector=app.kubernetes.io/part-of=slipway",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: {pod["metadata"]["name"] for pod in cluster.items(project.at("pods"))} == {"busy"})
        assert (busy.ended, busy.job["metadata"].get("deletionTimestamp")) == (None, None)
        # What no budget keeps, such as a preemption, tells the runner to end.
        cluster.call("DELETE", project.at("pods", "busy"))
        assert busy.hook("cleanup_job", {}).endswith("exit 0\n")
        assert busy.ended is None
        assert drain.poll() is None
        busy.run("for each in /proc/[0-9]*; do grep -qs ^Runner.Worker $each/cmdline && kill ${each#/proc/}; done")
        until(lambda: busy.ended is not None, description="the runner ends with its job")
        assert busy.ended == 0
        cluster.call("PATCH", project.at("pods", "busy"), {"metadata": {"finalizers": None}}, headers=MERGE)
        output, _ = drain.communicate(timeout=60)
        assert drain.returncode == 0, output
    finally:
        drain.kill()
        cluster.session.patch(
            f"{cluster.server}{project.at('pods', 'busy')}", json={"metadata": {"finalizers": None}}, headers=MERGE
        )
        subprocess.run([*kubectl, "uncordon", NODE], check=True, capture_output=True)


IN_DOCKER = """set -e
cd /__w/repo && echo of the job > note
tar --create --dereference /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*') 2>/dev/null | docker import - shell >/dev/null
docker run --rm --network=none --volume $PWD:/there shell /bin/sh -c 'read line < /there/note; echo "$line"'
"""
"""What a job does with a Docker daemon in its pod, right after its start."""


def test_jobs_with_parts_of_gpus_fill_a_node(runners: tuple[JobsProject, str, bool]) -> None:
    """Names that only the cluster knows: MIG's, and that of a shared InfiniBand device. Docker is beside the jobs."""
    project, server, own = runners
    cluster = project.cluster
    mig, shared = "nvidia.com/mig-3g.40gb", "rdma/shared_ib"
    capacity = {"status": {"capacity": {mig: "3", shared: "63"}}}
    cluster.call("PATCH", f"/api/v1/nodes/{NODE}/status", capacity, headers=MERGE)
    named = {"gpuResource": mig, "gpus": 2, "infinibandResource": shared, "infiniband": 1}
    docker = {"daemon": True, "dockerImage": IMAGE, "cache": "1Gi"}
    # Such jobs have nodes of their own, which a taint keeps for them. The one node here is the runners', too.
    taints = [{"key": each["key"], "effect": "NoSchedule"} for each in node(PROFILE).tolerations]
    cluster.call("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"taints": taints}}, headers=MERGE)
    project.deploy(RUNNER.format("official" if own else "stand-in"), **named, **docker, maxRunners=2)
    cluster.call("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}}, headers=MERGE)
    first, second = (Runner(project, name, server) for name in ("first", "second"))
    assert first.prepare().endswith("exit 0\n")
    container, _ = first.job["spec"]["containers"]
    ran = first.run(f"mkdir -p /__w/repo; {IN_DOCKER}", inside=True)
    assert (ran.splitlines()[0], ran.splitlines()[-1]) == ("of the job", "exit 0"), ran
    assert container["resources"]["limits"] == {mig: "2", shared: "1", "memory": "512Mi", "ephemeral-storage": "2Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    # What tells a container to see no GPU, as the runner's has it.
    assert "NVIDIA_VISIBLE_DEVICES" not in {entry["name"] for entry in container.get("env", ())}
    assert first.run("echo $NVIDIA_VISIBLE_DEVICES") == "void\nexit 0\n"
    second.waits_for(mig)


def test_runner_rights_end_at_its_jobs(runners: tuple[JobsProject, str, bool]) -> None:
    project, _, _ = runners
    cluster, space = project.cluster, project.namespace
    runner, job = f"system:serviceaccount:{space}:runner", f"system:serviceaccount:{space}-jobs:job"
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
        for resource in ("pods", "secrets", "pods/exec", "serviceaccounts/token", "configmaps", "nodes", "namespaces"):
            for where in (space, f"{space}-controller", "kube-system", ""):
                assert not cluster.can(runner, verb, resource, namespace=where), (verb, resource, where)
            for where in (space, f"{space}-jobs", ""):
                assert not cluster.can(job, verb, resource, namespace=where), (verb, resource, where)
    assert cluster.can(runner, "create", "pods", namespace=f"{space}-jobs")
