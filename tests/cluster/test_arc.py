"""ARC's own controller and listener in pods of a real node, and runners that are GitHub's ``run.sh``, for jobs of a stand-in.

``SLIPWAY_ARC`` names a checkout of actions-runner-controller with ``manager-RELEASE`` and ``ghalistener-RELEASE`` in its
``bin``, built with that release as ``build.Version``; ``SLIPWAY_RUNNER`` GitHub's ``src/Misc/layoutroot``.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import STORAGE, ClusterProject
from tests.cluster.control_plane import Cluster, control_plane, until
from tests.cluster.machine import BRIDGE, GATEWAY, IMAGE, NODE, build, engine, machine
from tests.cluster.programs import program
from tests.fakes.github.arc_service import ArcService, certificate, served_by_tls
from tests.fakes.github.runner_api import TOKEN
from tests.fakes.kubernetes.load_balancer import relay
from tests.helpers.free_port import free_port

ARC, LAYOUT = os.environ.get("SLIPWAY_ARC"), os.environ.get("SLIPWAY_RUNNER")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ARC and LAYOUT), reason="ARC's programs and GitHub's run.sh are in no registry of packages"
    ),
]

API, GITHUB = "10.96.0.1", "10.96.0.2"
"""The cluster's own service, and GitHub, as pods reach them."""
SETS = "/apis/actions.github.com/v1alpha1"
CONTROLLER = "slipway.test/gha-runner-scale-set-controller:{}"
CONTROLLER_DOCKERFILE = """FROM scratch
COPY manager ghalistener /
COPY github.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/manager"]
"""
RUNNER = "slipway.test/arc-runner:1"
RUNNER_DOCKERFILE = f"""FROM {IMAGE}
RUN apt-get update -q && apt-get install -q -y --no-install-recommends curl && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1001 --create-home runner
COPY --chown=1001 home /home/runner
"""
LISTENER = f"""#!/bin/bash
# As JobDispatcher.cs: a job has a process of its own, and an interrupt cancels it.
name=$(base64 -d <<< "$ACTIONS_RUNNER_INPUT_JITCONFIG" | sed -E 's/.*"name": "([^"]*)".*/\\1/')
say() {{ curl -fsSk --max-time 20 "https://{GITHUB}/runner/$name/$1"; }}
interrupted() {{
  if [ -n "$worker" ]; then kill -- "-$worker"; say cancelled; else say idle; fi
  exit 0
}}
trap interrupted INT
say up
until job=$(say job); [ -n "$job" ]; do sleep 0.5; done
setsid "$(dirname "$0")/Runner.Worker" "$name" & worker=$!
wait "$worker"
say done
"""
WORKER = f"""#!/bin/bash
until [ "$(curl -fsSk --max-time 20 "https://{GITHUB}/runner/$1/end")" = yes ]; do sleep 0.5; done
"""


def build_controller(release: str, authority: Path) -> str:
    """Have ARC's image of a release in the machine's Docker engine; return its name."""
    with tempfile.TemporaryDirectory() as context:
        for name in ("manager", "ghalistener"):
            shutil.copy(Path(ARC or "", "bin", f"{name}-{release}"), Path(context, name))
        shutil.copy(authority, Path(context, "github.crt"))
        Path(context, "Dockerfile").write_text(CONTROLLER_DOCKERFILE)
        engine().images.build(path=context, tag=CONTROLLER.format(release), rm=True)
    return CONTROLLER.format(release)


def build_runner() -> str:
    """Have GitHub's ``run.sh`` with a listener of ours in the machine's Docker engine; return the image's name."""
    with tempfile.TemporaryDirectory() as context:
        home = Path(context, "home")
        shutil.copytree(LAYOUT or "", home)
        for name, text in (("Runner.Listener", LISTENER), ("Runner.Worker", WORKER)):
            path = home / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        Path(context, "Dockerfile").write_text(RUNNER_DOCKERFILE)
        engine().images.build(path=context, tag=RUNNER, rm=True)
    return RUNNER


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, tuple[Path, Path]]]:
    """A cluster with a real node, whose pods reach its API, and find ARC's image and the runners'."""
    (base,) = json.loads(os.environ["SLIPWAY_MIRRORS"])["images"].values()
    image = build(f"{base}:bookworm-slim")
    keys = certificate(tmp_path_factory.mktemp("github"), GITHUB)
    with control_plane(tmp_path_factory.mktemp("cluster"), GATEWAY) as cluster:
        cluster.call("POST", "/apis/storage.k8s.io/v1/storageclasses", STORAGE)
        with machine(cluster, image) as its_node:
            for address in (API, GITHUB):
                subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", BRIDGE], check=True)
            for name in (*(build_controller(release, keys[0]) for release in ("0.14.2", "0.15.0")), build_runner()):
                its_node.load(name)
            with relay(lambda: ("127.0.0.1", cluster.port), API, 443):
                yield cluster, keys


class ArcProject(ClusterProject):
    """A project whose scale sets ARC serves, with a GitHub of its own."""

    def __init__(self, root: Path, cluster: Cluster, namespace: str, github: ArcService) -> None:
        self.github = github
        super().__init__(root, cluster, namespace)
        shutil.rmtree(root / "charts")
        for chart in ("gha-runner-scale-set-controller", "gha-runner-scale-set"):
            shutil.copytree(Path(ARC or "", "charts", chart), root / "charts" / chart)

    def release(self, version: str) -> None:
        """Have the charts of another release of ARC."""
        for chart in self.root.glob("charts/*/Chart.yaml"):
            lines = chart.read_text().splitlines()
            new = {"version": f"version: {version}", "appVersion": f'appVersion: "{version}"'}
            chart.write_text("\n".join(new.get(line.partition(":")[0], line) for line in lines) + "\n")

    def set(self, **more: Any) -> None:
        """Write the stack's file: runners of one CPU fleet."""
        small = {"profile": "cpu", "jobPods": True, "image": RUNNER, "maxRunners": 2, "grace": 3}
        github = {"url": f"https://{GITHUB}/acme", "secret": "github"}
        self.configure(
            {**small, "github": github, "labels": ["gpu"], **more},
            mirrors={"images": {"ghcr.io/actions": "slipway.test"}},
        )

    def login(self) -> None:
        """Give ARC its token, as the guide has it."""
        token = {"github_token": base64.b64encode(TOKEN.encode()).decode()}
        self.cluster.call(
            "POST",
            self.at("secrets"),
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "github"}, "data": token},
        )

    def runners(self) -> dict[str, dict[str, Any]]:
        """Return the runners' pods by name."""
        return {pod["metadata"]["name"]: pod for pod in self.cluster.items(self.at("pods"))}

    def job(self, number: int, label: str = "gpu") -> str:
        """Have a job, and wait until a runner has it; return the runner's name."""
        until(
            lambda: self.github.sessions and not self.github.ask(number, label) and number in self.github.jobs_of_set,
            description="the scale set is at GitHub",
        )
        until(lambda: self.github.jobs_of_set[number].get("runner"), description="a runner has the job")
        runner: str = self.github.jobs_of_set[number]["runner"]
        until(lambda: ready(self.runners()[runner]), description="its pod is ready")
        return runner

    def end(self, number: int) -> None:
        """End a job, and wait for its result."""
        self.github.ends.add(number)
        until(lambda: number in self.github.results, description="the job's result is at GitHub")


def ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


@pytest.fixture
def arc(tmp_path: Path, site: tuple[Cluster, tuple[Path, Path]]) -> Iterator[ArcProject]:
    """A project with a scale set that ARC serves."""
    cluster, keys = site
    with served_by_tls(GITHUB, keys) as github:
        project = ArcProject(tmp_path / "project", cluster, f"a{free_port()}", github)
        project.add_stack()
        project.set()
        project.up()
        project.login()
        yield project


def gone(project: ArcProject) -> bool:
    spaces = [each["metadata"]["name"] for each in project.cluster.items("/api/v1/namespaces")]
    return not [name for name in spaces if name.startswith(project.namespace)]


def during(project: ArcProject, number: int, *words: str) -> Callable[[], str]:
    """Start a command while a job runs; return what ends the job, waits for the command and returns its output."""
    process = project.start(*words)

    def ended() -> str:
        assert process.poll() is None, process.communicate()[0]
        assert number not in project.github.results
        project.end(number)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert project.github.results[number] == "succeeded"
        text: str = output
        return text

    return ended


def deleted(project: ArcProject) -> bool:
    """Tell whether the scale set is being deleted, and waits for its job: its listener is gone."""
    sets = project.cluster.items(project.at("autoscalingrunnersets", api=SETS))
    listeners = project.cluster.items(project.at("autoscalinglisteners", api=SETS, of="-controller"))
    return bool(sets and sets[0]["metadata"].get("deletionTimestamp") and not listeners)


UP = ("up", "-s", "t", "--yes", "--skip-preview")


def test_changed_label_is_served_after_the_job(arc: ArcProject) -> None:
    arc.job(1)
    arc.set(labels=["h100"])
    ended = during(arc, 1, *UP)
    until(lambda: deleted(arc))
    ended()
    arc.job(2, "h100")
    arc.end(2)
    until(lambda: not arc.runners(), description="its pod is gone")
    arc.destroy()
    assert gone(arc)
    assert not arc.github.sets


def test_destroy_in_a_job_waits_for_its_end(arc: ArcProject) -> None:
    arc.job(1)
    ended = during(arc, 1, "destroy", "-s", "t", "--yes", "--skip-preview")
    until(lambda: deleted(arc))
    ended()
    assert gone(arc)
    assert not arc.github.sets


def test_next_minor_release_waits_for_the_job(arc: ArcProject) -> None:
    arc.job(1)
    arc.release("0.15.0")
    ended = during(arc, 1, *UP)
    until(lambda: deleted(arc))
    ended()
    arc.job(2)
    arc.end(2)
    arc.destroy()
    assert gone(arc)


def test_drain_ends_with_the_job(arc: ArcProject) -> None:
    """An idle runner goes at once, and another takes its place; what no budget keeps waits for the job, too."""
    arc.set(minRunners=1)
    arc.up()
    busy = arc.job(1)
    until(lambda: len(arc.runners()) == 2, description="an idle runner")
    kubectl = [str(program("kubectl")), "--kubeconfig", str(arc.cluster.kubeconfig)]
    only = ["--force", "--delete-emptydir-data", "--pod-selector=app.kubernetes.io/part-of=slipway"]
    drain = subprocess.Popen(
        [*kubectl, "drain", NODE, *only], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        until(lambda: any("idle" in said for said in arc.github.seen.values()), description="the idle runner is told")
        arc.cluster.call("DELETE", arc.at("pods", busy))
        arc.end(1)
        output, _ = drain.communicate(timeout=120)
        assert drain.returncode == 0, output
        assert arc.github.results[1] == "succeeded"
    finally:
        drain.kill()
        subprocess.run([*kubectl, "uncordon", NODE], check=True, capture_output=True)
    arc.job(2)
    arc.end(2)
    arc.destroy()
    assert gone(arc)
