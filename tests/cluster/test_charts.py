"""ARC's charts with our values, by real Helm on a real API server: stand-ins, and GitHub's own where a developer has them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.image.gpu.node_labels import GPU
from stacks.config.cluster.arc_config import ARC_CHARTS
from tests.cluster.conftest import CHARTS, ClusterProject
from tests.cluster.control_plane import Cluster, until
from tests.fakes.kubernetes.node import repeated
from tests.fakes.kubernetes.node_pools import pool

pytestmark = pytest.mark.slow

VARIABLE = "SLIPWAY_ARC_CHARTS"
"""Environment variable that names a folder with GitHub's charts, unpacked, to be tested as well."""

FOLDERS = [str(CHARTS), *([os.environ[VARIABLE]] if VARIABLE in os.environ else [])]
SETS = "/apis/actions.github.com/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@contextmanager
def cleared(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Remove the finalizers of deleted objects in a namespace, as the controller does; no registry here has its image."""
    kinds = [(SETS, "autoscalingrunnersets"), (RBAC, "roles"), (RBAC, "rolebindings"), ("/api/v1", "serviceaccounts")]

    def clear() -> None:
        for api, kind in kinds:
            path = f"{api}/namespaces/{namespace}/{kind}"
            entries: list[dict[str, Any]] = []
            with suppress(AssertionError):  # before the chart there is no such kind
                entries = cluster.items(path)
            for entry in entries:
                metadata = entry["metadata"]
                if metadata.get("deletionTimestamp") and metadata.get("finalizers"):
                    patch = {"metadata": {"finalizers": None}}
                    headers = {"Content-Type": "application/merge-patch+json"}
                    cluster.call("PATCH", f"{path}/{metadata['name']}", patch, headers=headers)

    with repeated(clear, 0.5):
        yield


@pytest.mark.parametrize("charts", FOLDERS, ids=["stand-ins", "GitHub's"][: len(FOLDERS)])
def test_charts_match_config_and_confine_the_controller(project: ClusterProject, charts: str) -> None:
    shutil.rmtree(project.root / "charts")
    shutil.copytree(Path(charts), project.root / "charts")
    cluster, space = project.cluster, project.namespace
    project.configure({"profile": "aks-ndv5", "minRunners": 1, "maxRunners": 3, "labels": ["gpu"], "group": "ml"})
    with pool(cluster, "aks-ndv5"), cleared(cluster, space):
        project.up()
        (scale_set,) = cluster.items(project.at("autoscalingrunnersets", api=SETS))
        spec = scale_set["spec"]
        assert (spec["minRunners"], spec["maxRunners"]) == (1, 3)
        assert spec["githubConfigSecret"] == "github"
        pod = spec["template"]["spec"]
        assert pod["containers"][0]["resources"]["limits"][GPU] == "8"
        assert [container["name"] for container in pod["initContainers"]] == ["init-dind-externals", "dind"]
        assert pod["serviceAccountName"] == "runner"
        controller = f"system:serviceaccount:{space}-controller:controller"
        assert cluster.can(controller, "get", "secrets", namespace=space)
        assert not cluster.can(controller, "get", "secrets", namespace="kube-system")
        assert not cluster.can(controller, "create", "pods", namespace="default")
        project.destroy()
    assert space not in {entry["metadata"]["name"] for entry in cluster.items("/api/v1/namespaces")}


def test_minor_release_ends_the_sets_before_their_controller(project: ClusterProject) -> None:
    """A new controller deletes the sets of another minor release, and may not know how to end their runners."""
    cluster, space = project.cluster, project.namespace
    path, merge = project.at("autoscalingrunnersets", space, SETS), {"Content-Type": "application/merge-patch+json"}
    text = {path: path.read_text() for path in project.root.glob("charts/*/Chart.yaml")}

    def release(version: str) -> None:
        for chart, as_it_is in text.items():
            chart.write_text(f'{as_it_is}appVersion: "{version}"\n')

    def born() -> list[str]:
        deployments = cluster.items(f"/apis/apps/v1/namespaces/{space}-controller/deployments")
        return [each["metadata"]["uid"] for each in (cluster.get(path), *deployments)]

    release("0.14.2")
    project.configure({"profile": "cpu"})
    with pool(cluster, "cpu"):
        project.up()
        first = born()
        release("0.14.3")
        project.up()
        assert born() == first
        release("0.15.0")
        of_before: dict[str, Any] = {"metadata": {"annotations": None}}
        prepared = cluster.get(path)["metadata"]["annotations"]
        cluster.call("PATCH", path, of_before, headers=merge)
        refused = project.up(check=False)
        assert refused.returncode != 0
        assert f"{space}/{space}: the scale set is of ARC 0.14.2, and this release of Slipway has not" in refused.output
        assert born() == first
        cluster.call("PATCH", path, {"metadata": {"annotations": prepared}}, headers=merge)
        cluster.call("PATCH", path, {"metadata": {"finalizers": ["acme.example/job"]}}, headers=merge)
        update = project.start("up", "-s", "t", "--yes", "--skip-preview")
        until(lambda: cluster.get(path)["metadata"].get("deletionTimestamp"))
        assert born() == first
        cluster.call("PATCH", path, {"metadata": {"finalizers": None}}, headers=merge)
        output, _ = update.communicate()
        assert update.returncode == 0, output
        assert not {*born()} & {*first}
        project.destroy()


def test_changed_label_or_address_makes_a_set_anew(project: ClusterProject) -> None:
    """ARC tells GitHub of labels, and of the address, only when it makes a scale set; the rest it follows."""
    cluster, space = project.cluster, project.namespace
    sets = {"a": {"labels": ["gpu"]}, "b": {}}

    def born() -> dict[str, str]:
        listed = cluster.items(project.at("autoscalingrunnersets", api=SETS))
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed}

    with pool(cluster, "cpu"):
        project.configure({"profile": "cpu", "sets": sets})
        project.up()
        first = born()
        assert [*first] == ["a", "b"]
        project.configure(
            {"profile": "cpu", "sets": {"a": {"labels": ["gpu"], "maxRunners": 2}, "b": {"minRunners": 1}}}
        )
        project.up()
        assert born() == first
        project.configure({"profile": "cpu", "sets": {**sets, "a": {"labels": ["gpu", "h100"]}}})
        project.up()
        assert (born()["a"] == first["a"], born()["b"] == first["b"]) == (False, True)
        project.configure({"profile": "cpu", "sets": {"renamed": sets["a"], "b": {}}})
        project.up()
        assert [*born()] == ["b", "renamed"]
        assert born()["b"] == first["b"]
        project.destroy()
    assert space not in {entry["metadata"]["name"] for entry in cluster.items("/api/v1/namespaces")}


@pytest.mark.parametrize("charts", FOLDERS, ids=["stand-ins", "GitHub's"][: len(FOLDERS)])
def test_controller_of_the_organization_serves_and_stays(project: ClusterProject, charts: str) -> None:
    shutil.rmtree(project.root / "charts")
    shutil.copytree(Path(charts), project.root / "charts")
    cluster, space = project.cluster, project.namespace
    home, account = f"{space}-arc", "arc-gha-rs-controller"
    applied, merge = (
        {"Content-Type": f"application/{kind}-patch+{form}"} for kind, form in (("apply", "yaml"), ("merge", "json"))
    )
    kept = project.root / "charts" / ARC_CHARTS[0]
    for definition in [yaml.safe_load(file.read_text()) for file in (kept / "crds").iterdir()]:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        cluster.call("PATCH", f"{path}?fieldManager=organization&force=true", definition, headers=applied)
    labels = {"app.kubernetes.io/part-of": "gha-rs-controller", "app.kubernetes.io/version": "0.15.1"}
    labels |= {"actions.github.com/controller-service-account-name": account}
    of_pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "none:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": of_pod}
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": home}})
    controllers = f"/apis/apps/v1/namespaces/{home}/deployments"
    cluster.call("POST", controllers, {"metadata": {"name": "arc", "labels": labels}, "spec": spec})
    chart = project.root / f"charts/{ARC_CHARTS[1]}/Chart.yaml"
    if "appVersion" not in chart.read_text():
        chart.write_text(f'{chart.read_text()}appVersion: "0.14.2"\n')
    kept.rename(project.root / "kept")
    named = {"charts": "charts", "controller": {"namespace": home, "account": account}}
    with pool(cluster, "cpu"), cleared(cluster, space):
        project.configure({"profile": "cpu", "arc": named})
        refused = project.up(check=False)
        assert (
            f"{home}/arc is of ARC 0.15.1, and deletes scale sets of 0.14: give an arc.version, or charts"
            in refused.output
        )
        version = {"metadata": {"labels": {"app.kubernetes.io/version": "0.14.1"}}}
        cluster.call("PATCH", f"{controllers}/arc", version, headers=merge)
        project.up()
        (scale_set,) = cluster.items(project.at("autoscalingrunnersets", api=SETS))
        assert scale_set["metadata"]["annotations"]["slipway/controller"] == f"{home}/{account}"
        spaces = {each["metadata"]["name"] for each in cluster.items("/api/v1/namespaces")}
        assert {name for name in spaces if name.startswith(space)} == {space, home}
        (project.root / "kept").rename(kept)
        project.configure({"profile": "cpu"})
        refused = project.up(check=False)
        assert f"{space}/{space}: {home}/{account} serves the scale set, and two would listen for it" in refused.output
        project.destroy()
    assert space not in {each["metadata"]["name"] for each in cluster.items("/api/v1/namespaces")}
    assert cluster.get(f"{controllers}/arc")["metadata"]["labels"]["app.kubernetes.io/version"] == "0.14.1"
