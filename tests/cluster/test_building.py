"""Images built on a cluster's own node: by the build service, whose layers outlive its pod, and by a runner's sidecar."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import STORAGE, ClusterProject
from tests.cluster.control_plane import Cluster, control_plane, free_port, until
from tests.cluster.machine import GATEWAY, IMAGE, Machine, build, engine, machine
from tests.cluster.relay import relay
from tests.engine.project import MANIFESTS
from tests.provider.conftest import own_registry

pytestmark = pytest.mark.slow

RUNNER = "slipway.test/runner:1"
RUNNER_DOCKERFILE = f"""FROM {IMAGE}
RUN groupadd --gid 123 docker-outside && useradd --uid 1001 --create-home --groups 123 runner && mkdir /home/runner/externals
ARG REPOSITORY
RUN printf '#!/bin/sh -ex\\n\\
mkdir -p /tmp/context && cd /tmp/context && echo hello > file\\n\\
printf "FROM scratch\\\\nCOPY file /file\\\\n" > Dockerfile\\n\\
docker build -t %s:1 . && docker push %s:1\\n' "$REPOSITORY" "$REPOSITORY" > /home/runner/run.sh && chmod +x /home/runner/run.sh
"""
"""In place of GitHub's runner: a job that builds and pushes one image."""

DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY link0/busybox /busybox
RUN ["/busybox", "sh", "-c", "/busybox date +%s%N > /stamp"]
ARG WORD
COPY link0/file.txt /${WORD}.txt
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Machine]]:
    """A cluster with a real node, which holds the images of its daemons."""
    (base,) = json.loads(os.environ["SLIPWAY_MIRRORS"])["images"].values()
    image = build(f"{base}:bookworm-slim")
    with control_plane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.call("POST", "/apis/storage.k8s.io/v1/storageclasses", STORAGE)
        with machine(cluster, image) as made:
            name = "slipway.test/gha-runner-scale-set-controller:0.0.1"
            made.ctr("images", "tag", image, name)
            yield cluster, made


@pytest.fixture(scope="module")
def registry(node: tuple[Cluster, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that both the machine and its pods reach."""
    assert node
    with own_registry(tmp_path_factory.mktemp("registry"), host=GATEWAY) as made:
        yield made.address


def manifest(registry: str, name: str, reference: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://{registry}/v2/{name}/manifests/{reference}", headers={"Accept": MANIFESTS}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


class BuildProject(ClusterProject):
    """A project whose images are built on the node."""

    def configure(self, runners: dict[str, Any] | None = None, **values: Any) -> None:
        small = {"cpu": "100m", "memory": "1Gi", "cache": "2Gi"}
        own = {"dockerImage": IMAGE, "image": RUNNER, **small, **(runners or {})}
        mirrors = {"images": {"ghcr.io/actions": "slipway.test"}}
        super().configure(own, mirrors=mirrors, **values)

    def pods(self) -> list[dict[str, Any]]:
        """Return those pods of the build service that are ready and stay."""
        found = self.cluster.items(f"{self.at('pods')}?labelSelector=app.kubernetes.io%2Fcomponent%3Dbuild-service")
        return [
            pod
            for pod in found
            if not pod["metadata"].get("deletionTimestamp")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]

    def daemon(self) -> tuple[str, int]:
        """Return where the build service's pod listens."""
        return self.pods()[0]["status"]["podIP"], 2376


@pytest.fixture
def project(tmp_path: Path, node: tuple[Cluster, Machine]) -> BuildProject:
    made = BuildProject(tmp_path / "project", node[0], f"b{free_port()}")
    made.pulumi("stack", "init", "t")
    return made


def test_a_stack_is_built_and_pushed_on_the_cluster_and_its_layers_outlive_the_pod(
    project: BuildProject, registry: str, shell: Path
) -> None:
    shutil.copy(shell, project.root / "dockerfiles/link0/busybox")
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE)
    with relay(project.daemon) as address:
        service = {"cache": "2Gi", "cpu": "100m", "memory": "2Gi", "address": address}

        def configure(**values: Any) -> None:
            where = {"kind": "local", "address": registry, "path": project.path}
            project.configure({"build": service}, flavor="chain", buildOn="runners", registry=where, **values)

        configure()
        # The machine's own engine has no part in it.
        away: dict[str, Any] = {"DOCKER_HOST": "tcp://127.0.0.1:9"}
        project.preview(**away)
        shown = project.up(**away).shown
        first = project.outputs()
        assert first["runners"]["buildService"] == address
        ref = first["images"]["link0"]["ref"]
        assert ref.startswith(f"{registry}/{project.path}/link0@sha256:")
        before = manifest(registry, f"{project.path}/link0", first["images"]["link0"]["digest"])["layers"]
        assert not [image for image in engine().images.list() if f"{project.path}/link0" in " ".join(image.tags)]

        pod = project.pods()[0]["metadata"]
        project.cluster.call("DELETE", project.at("pods", pod["name"]))
        until(lambda: any(other["metadata"]["uid"] != pod["uid"] for other in project.pods()), 180)
        configure(word="two")
        shown += project.up(**away).shown
        second = project.outputs()["images"]["link0"]
        after = manifest(registry, f"{project.path}/link0", second["digest"])["layers"]
        assert after[:2] == before[:2]  # the stamp too
        assert after[2:] != before[2:]

        host, _, port = address.partition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain) as wrapped:
            wrapped.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            with pytest.raises(ssl.SSLError, match="bad certificate|certificate required"):
                wrapped.recv(100)
        assert "PRIVATE KEY" not in shown + project.exported()
        assert "PRIVATE KEY" in project.pulumi("stack", "export", "-s", "t", "--show-secrets").stdout
        project.destroy()
    spaces = {entry["metadata"]["name"] for entry in project.cluster.items("/api/v1/namespaces")}
    assert project.namespace not in spaces
    assert not project.cluster.items("/api/v1/persistentvolumes")


def test_a_runner_builds_and_pushes_through_its_own_sidecar(
    project: BuildProject, node: tuple[Cluster, Machine], registry: str
) -> None:
    repository = f"{registry}/{project.path}/job"
    engine().images.build(
        fileobj=io.BytesIO(RUNNER_DOCKERFILE.encode()), tag=RUNNER, buildargs={"REPOSITORY": repository}, rm=True
    )
    node[1].load(RUNNER)
    project.configure()
    project.up()
    (scale_set,) = project.cluster.items(project.at("autoscalingrunnersets", api="/apis/actions.github.com/v1alpha1"))
    template = scale_set["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "job", "labels": template["metadata"]["labels"]},
        "spec": {"restartPolicy": "Never", **template["spec"], "terminationGracePeriodSeconds": 5},
    }
    project.cluster.call("POST", f"{project.at('pods')}?fieldValidation=Strict", pod)

    def ended() -> str:
        phase: str = project.cluster.get(project.at("pods", "job"))["status"]["phase"]
        return phase if phase in {"Succeeded", "Failed"} else ""

    phase = until(ended, 180)
    log = project.cluster.session.get(f"{project.cluster.server}{project.at('pods', 'job')}/log?container=runner").text
    assert phase == "Succeeded", log
    assert len(manifest(registry, f"{project.path}/job", "1")["layers"]) == 1
    project.destroy()
