"""Parts of the cluster's tests: a control plane, and a project whose runners are on it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import Cluster, control_plane
from tests.cluster.programs import program
from tests.engine.project import Project
from tests.fakes.kubernetes.node_pools import POOL
from tests.provider.conftest import shell  # noqa: F401 - a fixture for what is below
from tests.provider.plugin import CHECKOUT

CHARTS = CHECKOUT / "tests/fakes/kubernetes/charts"
"""Stand-ins for ARC's charts, which are in a registry that tests do not reach."""

OFFICIAL = os.environ.get("SLIPWAY_TEST_KUBERNETES_PLUGIN")
"""The path of Pulumi's own plugin, where a developer has it, to take the stand-in's place."""

STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "folders", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/host-path",
}
"""Folders below /tmp, which the controllers make and delete."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without a node."""
    with control_plane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.call("POST", "/apis/storage.k8s.io/v1/storageclasses", STORAGE)
        yield cluster


class RunnersProject(Project):
    """A project with runners, and Pulumi's Kubernetes plugin or its stand-in."""

    def __init__(self, root: Path, namespace: str, kubeconfig: Path, programs: Path) -> None:
        self.namespace = namespace
        super().__init__(root)
        shutil.copytree(CHARTS, root / "charts")
        plugins = root.with_name("plugins")
        plugins.mkdir()
        launcher = plugins / "pulumi-resource-kubernetes"
        if OFFICIAL:
            launcher.symlink_to(OFFICIAL)
        else:
            command = shlex.join([sys.executable, "-P", "-m", "tests.fakes.plugin", "tests.fakes.kubernetes.plugin"])
            launcher.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(CHECKOUT))} exec {command} "$@"\n')
            launcher.chmod(0o755)
        # The venv's bin stays first on PATH: the language host takes its Python from there.
        self.environment |= {
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PATH": f"{Path(sys.executable).parent}:{plugins}:{programs}:{self.environment['PATH']}",
            "KUBECONFIG": str(kubeconfig),
        }

    def configure(self, runners: dict[str, Any] | None = None, **values: Any) -> None:
        """Write the stack's YAML; ``runners`` holds what differs from a small pool on this cluster."""
        settings = {
            "kind": "kubernetes",
            "namespace": self.namespace,
            "github": {"url": "https://github.com/acme", "secret": "github"},
            "arc": {"charts": "charts"},
            "nodeSelector": POOL,
            "disk": "2Gi",
        }
        if runners and "build" in runners:
            of_jobs = "buildOn" not in values
            runners = {**runners, "build": {"jobs": of_jobs, "nodeSelector": POOL, **runners["build"]}}
        super().configure(**{"flavor": "runners", **values}, runners={**settings, **(runners or {})})

    def exported(self) -> str:
        """Return the state as it is stored, whatever it holds."""
        return self.pulumi("stack", "export", "-s", "t").stdout

    def destroy(self) -> None:
        """Delete the stack's resources."""
        self.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")


class ClusterProject(RunnersProject):
    """A project with runners on a cluster that is there."""

    def __init__(self, root: Path, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        super().__init__(root, namespace, cluster.kubeconfig, program("kubectl").parent)

    def at(self, kind: str, name: str = "", api: str = "/api/v1", of: str = "") -> str:
        """Return the path of the runners' objects of a kind, or of one; ``of="-build"``: of the build service's."""
        return f"{api}/namespaces/{self.namespace}{of}/{kind}{f'/{name}' if name else ''}"


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster, request: pytest.FixtureRequest) -> ClusterProject:
    """A fresh project with an empty stack, and a namespace of its own."""
    project = ClusterProject(tmp_path / "project", cluster, f"r{abs(hash(request.node.name)) % 10**8}")
    project.add_stack()
    return project
