"""The sweeper on a real API server: its objects as they are, its program with its own account's token."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.runners.kubernetes import isolation, job_pods
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.cluster.control_plane import Cluster, until

pytestmark = pytest.mark.slow

CONFIG = KubernetesRunnersConfig.model_validate(
    {
        "kind": "kubernetes",
        "namespace": "swept",
        "jobPods": True,
        "github": {"url": "https://github.com/acme", "secret": "github"},
    }
)
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "Pod": "/api/v1/namespaces/{}/pods",
}
MERGE = {"Content-Type": "application/merge-patch+json"}


def make(cluster: Cluster, manifest: dict[str, Any], query: str = "") -> dict[str, Any]:
    path = PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
    return cluster.call("POST", f"{path}?fieldValidation=Strict{query}", manifest)


def pod(cluster: Cluster, space: str, name: str, runner: str | None = None) -> None:
    labels = {"runner-pod": runner} if runner else {}
    spec = {"containers": [{"name": "x", "image": "r.example/x:1"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": space, "labels": labels}
    make(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def names(cluster: Cluster, space: str) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.items(PATHS["Pod"].format(space))}


def test_sweeper_ends_the_pods_of_lost_runners_alone(cluster: Cluster, tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node, "Node.js runs the sweeper: apt-get install nodejs"
    spaces = (isolation.namespace(CONFIG), job_pods.namespace(CONFIG), isolation.controller_namespace(CONFIG))
    for manifest in (*spaces, *job_pods.sweeper(CONFIG, "r.example/runner:1")):
        make(cluster, manifest)
    runners, jobs, home = (each["metadata"]["name"] for each in spaces)
    cron = cluster.items(PATHS["CronJob"].format(home))[0]
    template = cron["spec"]["jobTemplate"]["spec"]["template"]
    # Its namespace admits its pod, by Pod Security.
    until(lambda: cluster.items(f"/api/v1/namespaces/{home}/serviceaccounts"))
    tried = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try", "namespace": home}, **template}
    tried["metadata"] = {"name": "try", "namespace": home}
    assert make(cluster, tried, "&dryRun=All")["spec"]["serviceAccountName"] == "sweeper"

    until(lambda: cluster.items(f"/api/v1/namespaces/{runners}/serviceaccounts"))
    for name in ("alive", "ended"):
        pod(cluster, runners, name)
    ended = f"{PATHS['Pod'].format(runners)}/ended/status"
    cluster.call("PATCH", ended, {"status": {"phase": "Failed"}}, headers=MERGE)
    for name, runner in (("a", "alive"), ("b", "lost"), ("c", "ended"), ("d", "alive"), ("by-hand", None)):
        pod(cluster, jobs, name, runner)

    token = cluster.call("POST", f"/api/v1/namespaces/{home}/serviceaccounts/sweeper/token", {})["status"]["token"]
    (tmp_path / "token").write_text(token)
    shutil.copy(cluster.folder / "certificates/apiserver.crt", tmp_path / "ca.crt")
    container = template["spec"]["containers"][0]
    environment = {each["name"]: each["value"] for each in container["env"]}
    script = environment.pop("SWEEP").replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path))

    def sweep() -> str:
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port)}
        done = subprocess.run(
            [node, "-e", script],
            env={"PATH": os.environ["PATH"], **environment, **where},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert sweep() == "b: its runner lost is gone\nc: its runner ended is gone\n"
    until(lambda: names(cluster, jobs) == {"a", "d", "by-hand"})
    assert names(cluster, runners) == {"alive", "ended"}
    assert sweep() == ""
    # Another pod of the runner's name, as ARC makes after a failure, has no job yet.
    cluster.call("DELETE", f"{PATHS['Pod'].format(runners)}/alive?gracePeriodSeconds=0")
    until(lambda: "alive" not in names(cluster, runners))
    until(lambda: _another(cluster, runners, jobs))
    assert sweep() == "a: its runner alive is gone\nd: its runner alive is gone\n"

    sweeper = f"system:serviceaccount:{home}:sweeper"
    allowed = {
        (space, resource, verb)
        for space in (runners, jobs, home, "kube-system", "")
        for resource in ("pods", "pods/exec", "pods/log", "secrets", "configmaps", "serviceaccounts/token")
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
        if cluster.can(sweeper, verb, resource, namespace=space)
    }
    assert allowed == {(runners, "pods", "list"), (jobs, "pods", "list"), (jobs, "pods", "delete")}


def _another(cluster: Cluster, runners: str, jobs: str) -> bool:
    """Make a runner's pod that is younger than its job's; times have whole seconds."""
    pod(cluster, runners, "alive")
    path = PATHS["Pod"].format
    born = cluster.get(f"{path(runners)}/alive")["metadata"]["creationTimestamp"]
    if born > cluster.get(f"{path(jobs)}/a")["metadata"]["creationTimestamp"]:
        return True
    cluster.call("DELETE", f"{path(runners)}/alive?gracePeriodSeconds=0")
    return False


def test_sweeper_without_its_rights_fails_in_one_line(tmp_path: Path) -> None:
    """What it cannot read must not count as empty: every job's pod would go."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("")
    script = job_pods.sweeper(CONFIG, "x")[-1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0][
        "env"
    ]
    text = json.loads(json.dumps(script))[0]["value"].replace(
        "/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path)
    )
    environment = {
        "PATH": os.environ["PATH"],
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "1",
        "RUNNERS": "a",
        "JOBS": "b",
    }
    done = subprocess.run(
        ["node", "-e", text], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
