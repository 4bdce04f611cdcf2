"""Images built on a cluster's own node: by the build service, whose layers outlive its pod, and by a runner's sidecar."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.runners.kubernetes import build_daemon, certificates
from containers.engine.replicas import Replicas
from tests.cluster.conftest import STORAGE, ClusterProject
from tests.cluster.control_plane import Cluster, control_plane, until
from tests.cluster.machine import GATEWAY, IMAGE, Machine, build, build_rootless, engine, machine
from tests.cluster.programs import program
from tests.cluster.test_runners import UNCHANGED
from tests.engine.project import FLAVOR, MANIFESTS
from tests.fakes.kubernetes.load_balancer import relay
from tests.helpers.elf_writer import LOADER, elf, loader
from tests.helpers.free_port import free_port
from tests.provider.conftest import private_registry

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

EMPTY = "slipway.test/empty:1"
"""An image without Docker."""

DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY link0/busybox /busybox
RUN ["/busybox", "sh", "-c", "/busybox date +%s%N > /stamp"]
ARG WORD
COPY link0/file.txt /${WORD}.txt
"""


CHECKED = """ARG BASE_IMAGE
ARG CHECKED_IMAGE=installed
FROM ${BASE_IMAGE} AS installed
COPY link0/busybox /busybox
RUN ["/busybox", "sh", "-c", "/busybox date +%s%N > /stamp"]
COPY link0/program /opt/program
COPY link0/loader /lib64/ld-linux-x86-64.so.2
FROM ${CHECKED_IMAGE} AS checks
RUN --mount=type=bind,source=link0/checks,target=/mnt ["/busybox", "sh", "/mnt/10-made"]
FROM installed
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
        with machine(cluster, image) as node:
            name = "slipway.test/gha-runner-scale-set-controller:0.0.1"
            node.ctr("images", "tag", image, name)
            yield cluster, node


@pytest.fixture(scope="module")
def registry(node: tuple[Cluster, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that both the machine and its pods reach; the former trusts its certificate."""
    assert node
    folder, pem = tmp_path_factory.mktemp("registry"), certificates.make([GATEWAY])
    (folder / "ca.pem").write_text(pem["ca"])
    with (
        private_registry(folder, host=GATEWAY, tls=(pem["server_cert"], pem["server_key"])) as registry,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.pem"))
        yield registry.address


def manifest(registry: str, name: str, reference: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"https://{registry}/v2/{name}/manifests/{reference}", headers={"Accept": MANIFESTS}
    )
    trusted = ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"])
    with urllib.request.urlopen(request, timeout=10, context=trusted) as response:
        content: dict[str, Any] = json.load(response)
    return content


def refuses_strangers(address: str) -> None:
    """Who has no certificate is not answered."""
    host, _, port = address.partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain) as wrapped:
        wrapped.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        with pytest.raises(ssl.SSLError, match="bad certificate|certificate required"):
            wrapped.recv(100)


KEYS = {"cacert": "ca", "cert": "cert", "key": "key"}
"""The options of BuildKit's client, and the files of a client's secret."""


class BuildProject(ClusterProject):
    """A project whose images are built on the node."""

    def configure(self, runners: dict[str, Any] | None = None, **values: Any) -> None:
        given = {"dockerImage": IMAGE, "image": RUNNER, **(runners or {})}
        of_daemon = {"cpu": "100m", "memory": "1Gi", "cache": "2Gi"} if given.get("daemon", True) else {}
        settings = {**of_daemon, **given}
        mirrors = {"images": {"ghcr.io/actions": "slipway.test", "docker.io/moby": "slipway.test/moby"}}
        super().configure(settings, mirrors=mirrors, **values)

    def pods(self) -> list[dict[str, Any]]:
        """Return those pods of the build service that are ready and stay."""
        pods = self.cluster.items(self.at("pods", of="-build"))
        return [
            pod
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]

    def daemon(self, replica: int = 0) -> tuple[str, int]:
        """Return where a replica's pod of the build service listens."""
        component = build_daemon.service_labels(str(replica or ""))["app.kubernetes.io/component"]
        (pod,) = [
            each for each in self.pods() if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        return pod["status"]["podIP"], pod["spec"]["containers"][0]["ports"][0]["containerPort"]

    def scale_to_none(self, name: str) -> None:
        """Take the pod of a replica away."""
        path = self.at("deployments", name, api="/apis/apps/v1", of="-build")
        merge = {"Content-Type": "application/merge-patch+json"}
        self.cluster.call("PATCH", path, {"spec": {"replicas": 0}}, headers=merge)

    def restart(self) -> None:
        """End the build service's pod, and wait for the next."""
        (pod,) = self.pods()
        self.cluster.call("DELETE", self.at("pods", pod["metadata"]["name"], of="-build"))
        until(lambda: any(new_pod["metadata"]["uid"] != pod["metadata"]["uid"] for new_pod in self.pods()), 180)


@pytest.fixture
def project(tmp_path: Path, node: tuple[Cluster, Machine]) -> BuildProject:
    project = BuildProject(tmp_path / "project", node[0], f"b{free_port()}")
    project.add_stack()
    return project


def test_build_service_pushes_and_keeps_layers_without_pod(project: BuildProject, registry: str, shell: Path) -> None:
    shutil.copy(shell, project.root / "dockerfiles/link0/busybox")
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE)
    with relay(project.daemon) as address:
        service = {"cache": "2Gi", "cpu": "100m", "memory": "2Gi", "address": address}

        def configure(**values: Any) -> None:
            where = {"kind": "local", "address": registry, "path": project.path}
            runners = {"build": service, "daemon": False}
            project.configure(runners, flavor="chain", buildOn="runners", registry=where, **values)

        def names(kind: str, of: str) -> set[str]:
            return {each["metadata"]["name"] for each in project.cluster.items(project.at(kind, of=of))}

        project.configure({"build": {**service, "jobs": True}, "daemon": False})
        project.up()
        assert "build-client" in names("secrets", "")
        configure()
        # The machine's own engine has no part in it.
        unreachable: dict[str, Any] = {"DOCKER_HOST": "tcp://127.0.0.1:9"}
        project.preview(**unreachable)
        output = project.up(**unreachable).output
        first = project.outputs()
        assert first["runners"]["buildService"] == address
        # Jobs have neither the key nor a layer in the cache any more.
        assert "build-client" not in names("secrets", "")
        assert names("persistentvolumeclaims", "-build") == {"publish"}
        ref = first["images"]["link0"]["ref"]
        assert ref.startswith(f"{registry}/{project.path}/link0@sha256:")
        before = manifest(registry, f"{project.path}/link0", first["images"]["link0"]["digest"])["layers"]
        assert not [image for image in engine().api.images() if f"{project.path}/link0" in str(image["RepoTags"])]

        project.restart()
        configure(word="two")
        output += project.up(**unreachable).output
        second = project.outputs()["images"]["link0"]
        after = manifest(registry, f"{project.path}/link0", second["digest"])["layers"]
        assert after[:2] == before[:2]  # the stamp too
        assert after[2:] != before[2:]

        refuses_strangers(address)
        with relay(project.daemon, "127.0.0.2") as service["address"]:  # for which the certificate is not
            configure(word="two")
            output += project.up(**unreachable).output
            assert project.outputs()["images"]["link0"]["digest"] == second["digest"]
            refuses_strangers(service["address"])
            assert UNCHANGED.search(project.up(**unreachable).output)
        assert "PRIVATE KEY" not in output + project.exported()
        assert "PRIVATE KEY" in project.pulumi("stack", "export", "-s", "t", "--show-secrets").stdout
        project.destroy()
    spaces = {entry["metadata"]["name"] for entry in project.cluster.items("/api/v1/namespaces")}
    assert not [name for name in spaces if name.startswith(project.namespace)]
    until(lambda: not project.cluster.items("/api/v1/persistentvolumes"), description="the volumes are gone")


def test_unpushed_image_of_build_service_is_inspected(project: BuildProject, shell: Path) -> None:
    shutil.copy(shell, project.root / "dockerfiles/link0/busybox")
    project.write("dockerfiles/link0/Dockerfile", CHECKED)
    project.write("dockerfiles/link0/checks/10-made", "test -s /stamp\n")
    (project.root / "dockerfiles/link0/program").write_bytes(elf(needed=["libgone.so.1"], interpreter=LOADER))
    (project.root / "dockerfiles/link0/loader").write_bytes(loader())
    with relay(project.daemon) as address:
        service = {"cache": "2Gi", "cpu": "100m", "memory": "2Gi", "address": address}
        keys: dict[str, Any] = {"flavor": "chain", "buildOn": "runners", "publish": False}
        unreachable: dict[str, Any] = {"DOCKER_HOST": "tcp://127.0.0.1:9"}
        project.configure({"build": service, "daemon": False}, **keys)
        failed = project.up(check=False, **unreachable)
        assert failed.returncode != 0
        assert "/opt/program: missing libgone.so.1: not in the image" in failed.output, failed.output
        assert "Traceback" not in failed.output
        row = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
        project.configure({"build": service, "daemon": False}, **keys, inspection={"exceptions": [row]})
        output = failed.output + project.up(**unreachable).output
        assert UNCHANGED.search(project.up(**unreachable).output)
        assert project.outputs()["images"]["link0"]["ref"].startswith("sha256:")
        assert "PRIVATE KEY" not in output + project.exported()
        project.destroy()


def test_replicas_have_volumes_of_their_own_and_one_may_go(project: BuildProject, registry: str, shell: Path) -> None:
    for number in range(2):
        shutil.copy(shell, project.root / f"dockerfiles/link{number}/busybox")
        project.write(f"dockerfiles/link{number}/Dockerfile", DOCKERFILE.replace("link0", f"link{number}"))
    project.write("stacks/flavors/chain.py", FLAVOR.replace('Sibling(image=f"link{number - 1}") if number else ', ""))
    with relay(project.daemon) as first, relay(lambda: project.daemon(1)) as second:
        service = {"cache": "2Gi", "cpu": "100m", "memory": "2Gi"}
        unreachable: dict[str, Any] = {"DOCKER_HOST": "tcp://127.0.0.1:9"}

        def configure(addresses: list[str], **values: Any) -> None:
            where = {"kind": "local", "address": registry, "path": project.path}
            build = {**service, "address": addresses, "replicas": len(addresses)}
            keys = {"flavor": "chain", "length": 2, "buildOn": "runners", "registry": where, **values}
            project.configure({"build": build, "daemon": False}, **keys)

        def layers(name: str) -> list[Any]:
            digest = project.outputs()["images"][name]["digest"]
            content: list[Any] = manifest(registry, f"{project.path}/{name}", digest)["layers"]
            return content

        configure([first])
        project.up(**unreachable)
        uid = project.pods()[0]["metadata"]["uid"]
        built = {name: layers(name) for name in ("link0", "link1")}

        # The pod stays, and its volume with what it has built.
        configure([first, second])
        project.up(**unreachable)
        assert sorted(each["metadata"]["uid"] == uid for each in project.pods()) == [False, True]
        claims = project.cluster.items(project.at("persistentvolumeclaims", of="-build"))
        assert {each["metadata"]["name"] for each in claims} == {"publish", "publish-1"}
        assert {name: layers(name) for name in built} == built
        refuses_strangers(second)

        # Each takes one image. The first finds the layers of its own, the other one builds them once.
        names = [f"{project.namespace}-build/{name}" for name in ("build", "build-1")]
        order = Replicas("linux/amd64", dict.fromkeys(names, ""), ["link0", "link1"]).order
        (of_first,), (of_second,) = ([name for name in built if order(name)[0] == replica] for replica in names)
        configure([first, second], word="two")
        project.up(**unreachable)
        shared = {name: layers(name) for name in built}
        assert shared[of_first][:2] == built[of_first][:2]  # the stamp too
        assert shared[of_second][1] != built[of_second][1]
        configure([first, second], word="three")
        project.up(**unreachable)
        assert {name: layers(name)[:2] for name in built} == {name: shared[name][:2] for name in built}

        # One that is gone costs its build.
        project.scale_to_none("build-1")
        until(lambda: len(project.pods()) == 1, 180)
        project.preview("--expect-no-changes", **unreachable)
        configure([first, second], word="four")
        output = project.up(**unreachable).output
        assert f"slipway:runners.build: {names[1]}: no answer at tcp://{second}: " in output
        assert "other replicas take its images" in output
        assert layers(of_first)[:2] == shared[of_first][:2]
        assert layers(of_second)[:2] == built[of_second][:2]  # which the first one has from before
        assert UNCHANGED.search(project.up(**unreachable).output)
        assert "PRIVATE KEY" not in output + project.exported()
        project.destroy()


@pytest.fixture
def volume(node: tuple[Cluster, Machine], tmp_path: Path) -> Iterator[str]:
    """A class of storage with one volume, which is its user's own, as drivers make it that mind a pod's fsGroup."""
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, 1000, 1000)
    spec = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(folder)}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "own"}}
    volumes = "/api/v1/persistentvolumes"
    node[0].call("POST", volumes, {**volume, "spec": {**spec, "storageClassName": "own"}})
    yield "own"
    node[0].call("DELETE", f"{volumes}/own")
    until(lambda: not node[0].items(volumes))


def test_rootless_build_service_pushes_and_keeps_layers(
    project: BuildProject, node: tuple[Cluster, Machine], registry: str, shell: Path, volume: str, tmp_path: Path
) -> None:
    (base,) = json.loads(os.environ["SLIPWAY_MIRRORS"])["images"].values()
    name = f"slipway.test/{build_daemon.BUILDKIT}"
    build_rootless(f"{base}:bookworm-slim", name)
    node[1].load(name)
    context = tmp_path / "context"
    (context / "link0").mkdir(parents=True)
    shutil.copy(shell, context / "link0/busybox")
    (context / "link0/file.txt").write_text("hello")
    (context / "Dockerfile").write_text(DOCKERFILE.replace("${BASE_IMAGE}", "scratch"))
    with relay(project.daemon) as address:
        service = {"rootless": True, "cache": "2Gi", "cpu": "100m", "memory": "2Gi", "storageClass": volume}
        project.configure({"build": {**service, "address": address}})
        project.up()
        assert project.outputs()["runners"]["buildService"] == address
        files = project.cluster.get(project.at("secrets", "build-client"))["data"]
        for file, content in files.items():
            (tmp_path / file).write_bytes(base64.b64decode(content))

        def build(word: str) -> list[dict[str, Any]]:
            target = f"{registry}/{project.path}/rootless:{word}"
            keys = [f"--tls{option}={tmp_path / file}.pem" for option, file in KEYS.items()]
            sources = [f"--local={source}={context}" for source in ("context", "dockerfile")]
            done = subprocess.run(
                [
                    program("buildctl"),
                    f"--addr=tcp://{address}",
                    *keys,
                    "build",
                    "--frontend=dockerfile.v0",
                    *sources,
                    f"--opt=build-arg:WORD={word}",
                    f"--output=type=image,name={target},push=true,registry.insecure=true",
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            layers: list[dict[str, Any]] = manifest(registry, f"{project.path}/rootless", word)["layers"]
            return layers

        before = build("one")
        project.restart()
        after = build("two")
        assert after[:2] == before[:2]  # the stamp too
        assert after[2:] != before[2:]
        refuses_strangers(address)
        project.destroy()


def test_pod_outlives_a_broken_image_and_waits_for_builds(project: BuildProject, node: tuple[Cluster, Machine]) -> None:
    service = {"build": {"cache": "2Gi", "cpu": "100m", "memory": "1Gi"}}
    project.configure(service)
    project.up()
    (pod,) = project.pods()
    engine().images.build(fileobj=io.BytesIO(b"FROM scratch\nWORKDIR /empty\n"), tag=EMPTY, rm=True)
    node[1].load(EMPTY)
    project.configure({**service, "dockerImage": EMPTY})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert 'exec: "sh": executable file not found' in failed.output, failed.output
    project.configure(service)
    project.up()
    assert [each["metadata"]["uid"] for each in project.pods()] == [pod["metadata"]["uid"]]
    path = project.at("pods", pod["metadata"]["name"], of="-build")
    anew = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    with socket.create_connection(project.daemon(), timeout=10):
        deployment = project.at("deployments", "build", api="/apis/apps/v1", of="-build")
        project.cluster.call(
            "PATCH", deployment, anew, headers={"Content-Type": "application/strategic-merge-patch+json"}
        )
        time.sleep(10)
        daemons = f"{project.at('pods', of='-build')}?labelSelector=app.kubernetes.io/component=build-service"
        names = [each["metadata"]["name"] for each in project.cluster.items(daemons)]
        assert names == [pod["metadata"]["name"]]  # two daemons would share its layers
        (status,) = [
            each for each in project.cluster.get(path)["status"]["containerStatuses"] if each["name"] == "daemon"
        ]
        assert "running" in status["state"]
    until(lambda: [new_pod["metadata"]["uid"] != pod["metadata"]["uid"] for new_pod in project.pods()] == [True], 60)
    project.destroy()


def test_checks_on_a_node_report_their_failure(project: BuildProject) -> None:
    def checks(script: str) -> dict[str, Any]:
        return {"validation": {"image": IMAGE, "command": ["sh", "-c", script], "minutes": 3}}

    project.configure(checks("echo this node has no fabric; exit 3"))
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "this node has no fabric" in failed.output, failed.output
    project.configure(checks("grep -q 'NoNewPrivs:.1' /proc/self/status && ! test -e /var/run/secrets/kubernetes.io"))
    project.up()
    assert project.outputs()["runners"]["validation"] == {"image": IMAGE, "passed": True}
    project.destroy()


def test_runner_builds_and_pushes_through_its_sidecar(
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
