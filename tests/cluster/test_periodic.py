"""What looks after runners, on a real API server: its objects as they are, its programs with their own accounts' tokens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.runners.kubernetes import isolation, job_pods
from components.runners.kubernetes.periodic import minimum
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.cluster.conftest import CHARTS
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
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "AutoscalingRunnerSet": "/apis/actions.github.com/v1alpha1/namespaces/{}/autoscalingrunnersets",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
DEFINITION = "gha-runner-scale-set-controller/crds/autoscalingrunnersets.yaml"
MERGE = {"Content-Type": "application/merge-patch+json"}


def make(cluster: Cluster, manifest: dict[str, Any], query: str = "") -> dict[str, Any]:
    path = PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
    return cluster.call("POST", f"{path}?fieldValidation=Strict{query}", manifest)


def pod(cluster: Cluster, space: str, name: str, runner: str | None = None) -> None:
    labels = {"runner-pod": runner} if runner else {}
    spec = {"containers": [{"name": "x", "image": "r.example/x:1"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": space, "labels": labels}
    make(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def rounded(cluster: Cluster, cron: dict[str, Any], folder: Path, before: str = "") -> str:
    """Run a CronJob's program with its account's token, and what is ``before`` it; return what it says."""
    home, template = cron["metadata"]["namespace"], cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (folder / "token").write_text(token(cluster, home, template["serviceAccountName"]))
    shutil.copy(cluster.folder / "certificates/apiserver.crt", folder / "ca.crt")
    variables = {each["name"]: each["value"] for each in template["containers"][0]["env"]}
    text = variables.pop(next(iter(variables))).replace("/var/run/secrets/kubernetes.io/serviceaccount", str(folder))
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port)}
    node = shutil.which("node")
    assert node, "Node.js runs the programs: apt-get install nodejs"
    done = subprocess.run(
        [node, "-e", before + text],
        env={"PATH": os.environ["PATH"], **variables, **where},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def token(cluster: Cluster, space: str, account: str) -> str:
    made = cluster.call("POST", f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token", {})
    return str(made["status"]["token"])


def names(cluster: Cluster, space: str) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.items(PATHS["Pod"].format(space))}


def test_sweeper_ends_the_pods_of_lost_runners_alone(cluster: Cluster, tmp_path: Path) -> None:
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

    def sweep() -> str:
        return rounded(cluster, cron, tmp_path)

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


def at(when: str) -> str:
    """Return what has a program of Node.js take a time for now."""
    return f"const RealDate = Date; Date = class extends RealDate {{ constructor() {{ super('{when}') }} }}\n"


def test_minimum_follows_the_clock_and_may_change_no_more(cluster: Cluster, tmp_path: Path) -> None:
    office = {"minRunners": 2, "days": ["mon"], "start": "08:00", "end": "18:00", "timeZone": "Europe/Berlin"}
    config = KubernetesRunnersConfig.model_validate(
        {
            "kind": "kubernetes",
            "namespace": "scheduled",
            "github": {"url": "https://github.com/acme", "secret": "github"},
            "sets": {"office": {"schedule": [office]}, "plain": {"minRunners": 1}},
        }
    )
    place = PATHS["AutoscalingRunnerSet"].format("scheduled")
    if not cluster.session.get(f"{cluster.server}{place}").ok:
        make(cluster, yaml.safe_load((CHARTS / DEFINITION).read_text()))
    objects = [isolation.namespace(config), isolation.controller_namespace(config)]
    objects += minimum.minimum(config, "r.example/runner:1")
    for manifest in objects:
        make(cluster, manifest)
    until(lambda: cluster.session.get(f"{cluster.server}{place}").ok)
    for name in ("office", "plain"):
        spec = {"minRunners": 0, "maxRunners": 4, "template": {"spec": {"containers": [{"name": "runner"}]}}}
        metadata = {"name": name, "namespace": "scheduled", "labels": {"a": "b"}}
        make(
            cluster,
            {"apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet", "metadata": metadata, "spec": spec},
        )  # fmt: skip
    # Its namespace admits its pod, by Pod Security.
    cron, home = objects[-1], config.controller_namespace
    until(lambda: cluster.items(f"/api/v1/namespaces/{home}/serviceaccounts"))
    tried = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try", "namespace": home}}
    make(cluster, {**tried, **cron["spec"]["jobTemplate"]["spec"]["template"]}, "&dryRun=All")
    for when, expected, said in (
        ("2027-03-22T06:59:00Z", 0, ""),
        ("2027-03-22T07:00:00Z", 2, "office: minRunners is 2 from now on\n"),
        ("2027-03-22T16:59:00Z", 2, ""),
        ("2027-03-22T17:00:00Z", 0, "office: minRunners is 0 from now on\n"),
    ):
        assert rounded(cluster, cron, tmp_path, at(when)) == said, when
        assert cluster.get(f"{place}/office")["spec"]["minRunners"] == expected

    numbers = count(10)
    own = {**MERGE, "Authorization": f"Bearer {token(cluster, home, minimum.NAME)}"}

    def patched(name: str, patch: dict[str, Any]) -> int:
        return cluster.session.patch(f"{cluster.server}{place}/{name}", json=patch, headers=own, timeout=60).status_code

    # Once the server knows the policy; what is so already is no change, and allowed.
    until(lambda: patched("office", {"spec": {"maxRunners": next(numbers)}}) == 422)
    assert patched("office", {"spec": {"minRunners": 1}}) == 200
    evil = {"spec": {"containers": [{"name": "runner", "image": "evil.example/x:1"}]}}
    for patch in (
        {"spec": {"template": evil}},
        {"spec": {"minRunners": 3, "listenerTemplate": evil}},
        {"spec": {"template": None}},
        {"metadata": {"labels": {"a": "c"}}},
        {"metadata": {"annotations": {"actions.github.com/values-hash": "x"}}},
        {"metadata": {"finalizers": ["acme.example/kept"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "x"}]}},
    ):
        assert patched("office", patch) == 422, patch
    assert patched("plain", {"spec": {"minRunners": 3}}) == 403
    assert cluster.get(f"{place}/plain")["spec"]["minRunners"] == 0
    cluster.call("PATCH", f"{place}/plain", {"spec": {"template": evil}}, headers=MERGE)  # others may, as before


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
