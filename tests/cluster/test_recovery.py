"""Runners after what happens beside Pulumi: drift, a chart that fails, objects and clusters that are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from components.runners.kubernetes.objects.declaration import MARK
from stacks.config.cluster.arc_config import ARC_CHARTS
from tests.cluster.conftest import ClusterProject
from tests.cluster.control_plane import until
from tests.cluster.programs import program
from tests.cluster.test_runners import SETS, UNCHANGED, runner_pod
from tests.engine.project import Run
from tests.fakes.kubernetes.cutting_proxy import cutting_proxy
from tests.fakes.kubernetes.node_pools import pool

pytestmark = pytest.mark.slow

BROKEN = "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {type: Nothing, ports: [{port: 1}]}\n"
APPS = "/apis/apps/v1"
CLAIMS = "/apis/resource.k8s.io/v1"


def pulumi(project: ClusterProject, *words: str) -> Run:
    return project.pulumi(*words, "-s", "t", "--yes", "--skip-preview", check=False)


def on_cluster(project: ClusterProject, name: str, *words: str, text: str = "") -> str:
    """Run kubectl or Helm by hand."""
    command = [str(program(name)), "--kubeconfig", str(project.cluster.kubeconfig), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, input=text).stdout


def gone(project: ClusterProject) -> bool:
    spaces = [each["metadata"]["name"] for each in project.cluster.items("/api/v1/namespaces")]
    return not [name for name in spaces if name.startswith(project.namespace)]


def test_refresh_mends_what_others_changed(project: ClusterProject) -> None:
    project.configure({"profile": "cpu", "github": {"url": "https://github.com/acme"}})
    project.pulumi("config", "set", "-s", "t", "--secret", "--path", "slipway:runners.github.token", "hunter2")
    with pool(project.cluster, "cpu"):
        project.up()
        assert pulumi(project, "refresh").returncode == 0
        assert UNCHANGED.search(project.up().output)
        patch = {"spec": {"hard": {"pods": "77"}}}
        of_space = ["--namespace", project.namespace]
        on_cluster(project, "kubectl", "patch", "resourcequota", "runners", *of_space, "--patch", json.dumps(patch))
        on_cluster(project, "kubectl", "delete", "secret", "github", *of_space)
        on_cluster(project, "kubectl", "delete", "networkpolicy", "--all", *of_space)
        assert UNCHANGED.search(project.up().output)
        assert pulumi(project, "up", "--refresh").returncode == 0
        quota = project.cluster.get(project.at("resourcequotas", "runners"))
        assert quota["spec"]["hard"]["pods"] != "77"
        policies = project.cluster.items(project.at("networkpolicies", api="/apis/networking.k8s.io/v1"))
        assert {each["metadata"]["name"] for each in policies} == {"build", "closed"}
        assert project.cluster.get(project.at("secrets", "github"))["type"] == "Opaque"
        assert UNCHANGED.search(project.up().output)
        project.destroy()
    assert gone(project)


def test_chart_that_failed_is_tried_again(project: ClusterProject) -> None:
    """Unless a refresh forgets that it failed; then a warning says how to go on."""
    project.configure({"profile": "cpu"})
    broken = project.root / "charts" / ARC_CHARTS[0] / "templates/broken.yaml"
    broken.write_text(BROKEN)
    controller = project.at("deployments", "controller", APPS, "-controller")
    warning = f"{project.namespace}-controller/controller: Helm's last revision of the chart is failed"
    with pool(project.cluster, "cpu"):
        failed = project.up(check=False)
        assert failed.returncode != 0
        assert "spec.type: Unsupported value" in failed.output
        broken.unlink()
        project.up()
        project.cluster.get(controller)
        assert warning not in project.up().output
        broken.write_text(BROKEN)
        values = {"controller": {"resources": {"limits": {"memory": "600Mi"}}}}
        project.configure({"profile": "cpu", "arc": {"charts": "charts", "values": values}})
        assert project.up(check=False).returncode != 0
        broken.unlink()
        assert pulumi(project, "refresh").returncode == 0
        left = project.up()
        assert UNCHANGED.search(left.output)
        assert warning in left.output
        on_cluster(project, "helm", "uninstall", "controller", "--namespace", f"{project.namespace}-controller")
        assert pulumi(project, "up", "--refresh").returncode == 0
        (container,) = project.cluster.get(controller)["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["memory"] == "600Mi"
        again = project.up()
        assert UNCHANGED.search(again.output)
        assert warning not in again.output
        chart = broken.parents[1] / "Chart.yaml"
        chart.write_text(chart.read_text().replace("version: ", "version: 1", 1))
        newer = project.up().output
        assert "runners-gha-runner-scale-set-controller updated" in newer
        assert "~version" in newer
        project.destroy()
    assert gone(project)


def test_destroy_ends_what_a_failed_install_left(project: ClusterProject) -> None:
    project.configure({"profile": "cpu"})
    (project.root / "charts" / ARC_CHARTS[0] / "templates/broken.yaml").write_text(BROKEN)
    with pool(project.cluster, "cpu"):
        assert project.up(check=False).returncode != 0
        project.destroy()
    assert gone(project)


def test_scale_set_that_is_gone_comes_again(project: ClusterProject) -> None:
    """As the warning says: Helm still has its chart, and so Pulumi does."""
    project.configure({"profile": "cpu"})
    sets, of_space = project.at("autoscalingrunnersets", api=SETS), ["--namespace", project.namespace]
    with pool(project.cluster, "cpu"):
        project.up()
        on_cluster(project, "kubectl", "delete", "autoscalingrunnersets", project.namespace, *of_space)
        told = pulumi(project, "up", "--refresh")
        assert told.returncode == 0
        assert f"{project.namespace}/{project.namespace}: the scale set is gone, and Helm still has" in told.output
        assert project.cluster.items(sets) == []
        on_cluster(project, "helm", "uninstall", project.namespace, *of_space)
        assert pulumi(project, "up", "--refresh").returncode == 0
        assert [each["metadata"]["name"] for each in project.cluster.items(sets)] == [project.namespace]
        again = project.up().output
        assert UNCHANGED.search(again)
        assert "the scale set is gone" not in again
        project.destroy()
    assert gone(project)


def test_namespace_that_stays_is_refused_with_its_reason(project: ClusterProject) -> None:
    cluster, space = project.cluster, f"/api/v1/namespaces/{project.namespace}"
    merge = {"Content-Type": "application/merge-patch+json"}
    project.configure({"profile": "cpu"})
    with pool(cluster, "cpu"):
        project.up()
        held = {"metadata": {"name": "held", "finalizers": ["acme.example/job"]}}
        cluster.call("POST", project.at("configmaps"), held)
        cluster.call("DELETE", space)
        until(lambda: "acme.example/job" in json.dumps(cluster.get(space)["status"].get("conditions", [])))
        for more in ((), ("--refresh",)):
            refused = pulumi(project, "up", *more)
            assert refused.returncode != 0
            assert f"{project.namespace}: the namespace is being deleted, and takes nothing new" in refused.output
            assert "finalizers remaining: acme.example/job in 1 resource instances" in refused.output
            assert "is forbidden" not in refused.output
        cluster.call("PATCH", project.at("configmaps", "held"), {"metadata": {"finalizers": None}}, headers=merge)
        until(
            lambda: project.namespace not in {each["metadata"]["name"] for each in cluster.items("/api/v1/namespaces")}
        )
        assert pulumi(project, "up", "--refresh").returncode == 0
        assert cluster.items(project.at("autoscalingrunnersets", api=SETS))
        assert UNCHANGED.search(project.up().output)
        project.destroy()
    assert gone(project)


def kill_provider(project: ClusterProject) -> None:
    """Kill Pulumi's plugin for Kubernetes at once, with what it has started; without a node, Helm waits there."""
    plugins = str(project.root.with_name("plugins")).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            named = b"pulumi-resource-kubernetes" in words or b"fakes.kubernetes.plugin" in words or b"/helm\0" in words
            if named and plugins in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


MADE = {
    "profile": "cpu",
    "jobPods": True,
    "build": {"cache": "2Gi"},
    "schedule": [{"minRunners": 1, "days": ["mon"], "start": "08:00", "end": "18:00", "timeZone": "UTC"}],
}
"""Runners with one object of nearly each kind."""

CUT = "was cut off in the middle of this, and so it is made again"


def test_update_goes_on_where_its_provider_died(project: ClusterProject) -> None:
    """The cluster has what was made, of all kinds that are made at once, and the state does not."""
    project.configure(MADE)
    kubeconfig = project.root.with_name("proxied")
    project.environment["KUBECONFIG"] = str(kubeconfig)
    with cutting_proxy(project.cluster, kubeconfig) as cut, pool(project.cluster, "cpu"):
        for plural in ("namespaces", "networkpolicies", "persistentvolumeclaims", "autoscalingrunnersets"):
            cut.at(f"(POST|PATCH) .*/{plural}(/[^/]+)?", lambda: kill_provider(project))
            failed = project.up(check=False)
            assert failed.returncode != 0, (plural, failed.output)
        assert len(cut.hits) == 4
        assert CUT in project.up().output
        assert UNCHANGED.search(project.up().output)
        cut.at("PATCH .*/resourcequotas/.*", lambda: kill_provider(project))
        project.configure({**MADE, "maxRunners": 3})
        assert project.up(check=False).returncode != 0
        project.up()
        cut.at("DELETE .*/networkpolicies/.*", lambda: kill_provider(project))
        assert pulumi(project, "destroy").returncode != 0
        project.destroy()
    assert gone(project)


def test_object_of_others_is_never_taken(project: ClusterProject) -> None:
    """Nor is a namespace of this stack in which somebody has made something since."""
    cluster, spaces, kubeconfig = project.cluster, "/api/v1/namespaces", project.root.with_name("proxied")
    metadata = {"name": project.namespace, "annotations": {MARK: "of-another/runners-namespace"}}
    cluster.call("POST", spaces, {"metadata": metadata})
    project.configure({"profile": "cpu"})
    with cutting_proxy(cluster, kubeconfig) as cut, pool(cluster, "cpu"):
        refused = project.up(check=False)
        assert refused.returncode != 0
        assert f"Namespace {project.namespace}: one of this name is there, and not from this stack" in refused.output
        cluster.call("DELETE", f"{spaces}/{project.namespace}")
        until(lambda: project.namespace not in {each["metadata"]["name"] for each in cluster.items(spaces)})
        project.environment["KUBECONFIG"] = str(kubeconfig)
        cut.at(f"(POST|PATCH) {spaces}(/{project.namespace})?", lambda: kill_provider(project))
        assert project.up(check=False).returncode != 0
        until(lambda: project.namespace in {each["metadata"]["name"] for each in cluster.items(spaces)})
        cluster.call("POST", project.at("secrets"), {"metadata": {"name": "github"}})
        refused = project.up(check=False)
        assert refused.returncode != 0
        assert (
            f"Namespace {project.namespace}: it is not in the stack's state, and holds Secret github" in refused.output
        )
        key = "kubernetes:upsertExistingObjects"
        assert f"run `pulumi config set {key} true`" in refused.output
        project.pulumi("config", "set", "-s", "t", key, "true")
        project.up()
        project.pulumi("config", "rm", "-s", "t", key)
        project.up()
        assert UNCHANGED.search(project.up().output)
        assert cluster.get(project.at("secrets", "github"))
        project.destroy()
    assert gone(project)


def test_chart_goes_on_where_its_provider_died(project: ClusterProject) -> None:
    deployments = project.at("deployments", "", APPS, "-controller")

    def killed(status: str) -> None:
        update = project.start("up", "-s", "t", "--yes", "--skip-preview")
        selected = f"{project.at('secrets', of='-controller')}?labelSelector=owner=helm,status={status}"
        until(lambda: project.cluster.items(selected) and project.cluster.items(deployments), 240)
        kill_provider(project)
        assert update.communicate(timeout=120)
        assert update.returncode != 0
        with pool(project.cluster, "cpu"):
            assert CUT in project.up().output
            again = project.up().output
            assert UNCHANGED.search(again)
            assert "Helm's last revision" not in again

    project.configure({"profile": "cpu"})
    killed("pending-install")
    values = {"controller": {"resources": {"limits": {"memory": "600Mi"}}}}
    project.configure({"profile": "cpu", "arc": {"charts": "charts", "values": values}})
    killed("pending-upgrade")
    (controller,) = project.cluster.items(deployments)
    (container,) = controller["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "600Mi"
    with pool(project.cluster, "cpu"):
        project.destroy()
    assert gone(project)


def test_controller_that_is_gone_comes_again(project: ClusterProject) -> None:
    """As docs/runners/kubernetes-upgrade-and-remove.md says."""
    project.configure({"profile": "cpu"})
    home, deployments = f"{project.namespace}-controller", project.at("deployments", "", APPS, "-controller")
    with pool(project.cluster, "cpu"):
        project.up()
        on_cluster(project, "kubectl", "delete", "deployment", "controller", "--namespace", home)
        assert pulumi(project, "up", "--refresh").returncode == 0
        assert project.cluster.items(deployments) == []
        manifest = on_cluster(project, "helm", "get", "manifest", "controller", "--namespace", home)
        on_cluster(project, "kubectl", "apply", "--filename", "-", text=manifest)
        assert [each["metadata"]["name"] for each in project.cluster.items(deployments)] == ["controller"]
        assert UNCHANGED.search(project.up().output)
        on_cluster(project, "kubectl", "delete", "namespace", home)
        told = project.up().output
        assert f"the namespace {home} is gone, so that queued jobs get no runner: run `pulumi up --refresh`" in told
        assert pulumi(project, "up", "--refresh").returncode == 0
        assert [each["metadata"]["name"] for each in project.cluster.items(deployments)] == ["controller"]
        on_cluster(project, "kubectl", "delete", "namespace", project.namespace)
        assert pulumi(project, "up", "--refresh").returncode == 0
        assert project.cluster.items(project.at("autoscalingrunnersets", api=SETS))
        assert UNCHANGED.search(project.up().output)
        project.destroy()
    assert gone(project)


def test_cluster_that_is_gone_is_forgotten(project: ClusterProject) -> None:
    project.configure({"profile": "cpu"})
    with pool(project.cluster, "cpu"):
        project.up()
        dead = project.root.with_name("dead")
        dead.write_text(project.cluster.kubeconfig.read_text().replace(str(project.cluster.port), "1"))
        project.environment["KUBECONFIG"] = str(dead)
        for word in ("destroy", "refresh"):
            failed = pulumi(project, word)
            assert failed.returncode != 0
            assert "Traceback" not in failed.output
        project.environment["PULUMI_K8S_DELETE_UNREACHABLE"] = "true"
        forgotten = pulumi(project, "refresh")
        assert forgotten.returncode == 0, forgotten.output
        del project.environment["PULUMI_K8S_DELETE_UNREACHABLE"]
        project.destroy()
        assert not json.loads(project.exported())["deployment"].get("resources")


def test_shared_claim_goes_after_the_set_whose_pods_have_it(project: ClusterProject) -> None:
    cluster, path = project.cluster, project.at("autoscalingrunnersets", project.namespace, SETS)
    claim = project.at("resourceclaims", "gpus", CLAIMS)
    small: dict[str, Any] = {"profile": "eks-p5", "efa": 0, "maxRunners": 2}
    driver, merge = "gpu.nvidia.com", {"Content-Type": "application/merge-patch+json"}
    cel = {"expression": f"device.driver == '{driver}'"}
    device_class = {"metadata": {"name": driver}, "spec": {"selectors": [{"cel": cel}]}}
    devices = [{"name": f"gpu-{number}"} for number in range(8)]
    node_pool = {"name": "eks-p5", "generation": 1, "resourceSliceCount": 1}
    offered = {"nodeName": "eks-p5", "driver": driver, "pool": node_pool, "devices": devices}
    with pool(cluster, "eks-p5"):
        cluster.call("POST", f"{CLAIMS}/deviceclasses", device_class)
        cluster.call("POST", f"{CLAIMS}/resourceslices", {"metadata": {"name": "eks-p5"}, "spec": offered})
        project.configure({**small, "gpus": 1, "gpuClaim": {"shared": True}})
        project.up()
        born = [cluster.get(each)["metadata"]["uid"] for each in (path, claim)]
        runner_pod(project, "first")
        until(lambda: cluster.get(claim).get("status", {}).get("reservedFor"), description="the pod has the claim")
        cluster.call("PATCH", path, {"metadata": {"finalizers": ["acme.example/job"]}}, headers=merge)
        project.configure({**small, "gpus": 2, "gpuClaim": {"shared": True}})
        update = project.start("up", "-s", "t", "--yes", "--skip-preview")
        until(lambda: cluster.get(path)["metadata"].get("deletionTimestamp"))
        assert "deletionTimestamp" not in cluster.get(claim)["metadata"]
        cluster.call("DELETE", project.at("pods", "first"))  # its job is over
        cluster.call("PATCH", path, {"metadata": {"finalizers": None}}, headers=merge)
        output, _ = update.communicate(timeout=120)
        assert update.returncode == 0, output
        assert not {*born} & {cluster.get(each)["metadata"]["uid"] for each in (path, claim)}
        (request,) = cluster.get(claim)["spec"]["devices"]["requests"]
        assert request["exactly"]["count"] == 2
        project.destroy()
        for each in (f"deviceclasses/{driver}", "resourceslices/eks-p5"):
            cluster.call("DELETE", f"{CLAIMS}/{each}")
    assert gone(project)
