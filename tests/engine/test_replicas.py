"""Replicas of a build service, whose cluster is a folder: they share a stack's images, and what one costs that is gone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from containers.engine.replicas import Replicas
from tests.engine.folder_cluster import on_folder, service_context
from tests.engine.project import OFFICIAL, Project
from tests.fakes.docker_relay import Relay

pytestmark = pytest.mark.slow

NAMES = ["build", "build-1", "build-2"]
OF_BOTH = ["build", "build-arm64", "build-arm64-1"]
LINKS = ["link0", "link1", "link2"]
OF_REPLICA = {
    "kubernetes:apps/v1:Deployment",
    "kubernetes:core/v1:PersistentVolumeClaim",
    "kubernetes:core/v1:Secret",
    "kubernetes:core/v1:Service",
    "kubernetes:networking.k8s.io/v1:NetworkPolicy",
    "kubernetes:policy/v1:PodDisruptionBudget",
    "pulumi-python:dynamic/runners:Certificates",
    "pulumi-python:dynamic/runners:Reached",
}
"""The types of the resources of one replica, one of each."""
SHARED = {"kubernetes:core/v1:ResourceQuota", "slipway:runners:KubernetesRunners"}
"""The types of those that say how many replicas there are."""


class ReplicatedProject:
    """A project on replicas, each of which is this machine's engine behind a relay with the certificate of its secret."""

    def __init__(self, project: Project, relays: dict[str, Relay]) -> None:
        self.project, self.relays = project, relays

    def configure(self, replicas: int, **values: Any) -> None:
        """Write the stack's YAML, with replicas for one platform."""
        self.write(self.pool(*[*self.relays][:replicas]), **values)

    def pool(self, *names: str) -> dict[str, Any]:
        """Return the configuration of some replicas."""
        hosts = [self.relays[name].host.removeprefix("tcp://") for name in names]
        pool = {"address": hosts, "nodeSelector": {"acme.example/pool": names[0]}}
        return {**pool, "replicas": len(names)} if len(names) > 1 else {**pool, "address": hosts[0]}

    def write(self, build: dict[str, Any], **values: Any) -> None:
        """Write the stack's YAML."""
        runners = {
            "kind": "kubernetes",
            "github": {"url": "https://github.com/acme", "secret": "github"},
            "daemon": False,
            "build": build,
        }
        self.project.configure(length=3, runners=runners, buildOn="runners", **values)

    def steps(self) -> set[tuple[str, str, str]]:
        """Return what a preview changes: operation, type and name of each resource."""
        steps = json.loads(self.project.preview("--json").stdout)["steps"]
        changing = [(step["op"], *step["urn"].split("::")[2:]) for step in steps if step["op"] != "same"]
        return {(operation, typ.rpartition("$")[2], name) for operation, typ, name in changing}

    def builds(self) -> dict[str, int]:
        """Return how many builds each replica has had."""
        return {name: relay.builds for name, relay in self.relays.items()}


@pytest.fixture
def replicated(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ReplicatedProject]:
    """Yield a project with the replicas that a test names; those of one platform if it names none."""
    project, cluster = on_folder(tmp_path)
    with ExitStack() as stack:
        relays = {
            name: stack.enter_context(Relay(os.environ["DOCKER_HOST"], partial(service_context, cluster, name)))
            for name in getattr(request, "param", NAMES)
        }
        yield ReplicatedProject(project, relays)
        project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")


def of_replicas(steps: set[tuple[str, str, str]], operation: str) -> list[str]:
    """Return the types of the resources with an operation."""
    return sorted(typ for done, typ, _ in steps if done == operation)


@pytest.mark.skipif(OFFICIAL, reason="it asks the engine at a preview")
def test_replicas_share_images_and_one_may_go(replicated: ReplicatedProject) -> None:
    project = replicated.project
    replicated.configure(1)
    project.up()
    before = replicated.builds()
    assert before["build"] >= 3
    assert before["build-1"] == before["build-2"] == 0

    # The first replica stays as it is, and no image is touched.
    replicated.configure(3)
    steps = replicated.steps()
    assert of_replicas(steps, "create") == sorted([*OF_REPLICA, *OF_REPLICA])
    assert {(operation, typ) for operation, typ, _ in steps if operation != "create"} == {
        ("update", typ) for typ in SHARED | {"pulumi:providers:docker"}
    }
    digests = project.outputs()["images"]
    project.up()
    assert project.outputs()["images"] == digests
    assert replicated.builds() == before
    project.preview("--expect-no-changes")

    # Each builds its share; a preview says no more of it than of an image that is built anywhere else.
    replicated.configure(3, word="two")
    preview = project.preview("--json").stdout
    images = [step for step in json.loads(preview)["steps"] if step["urn"].split("::")[2].endswith("image:Image")]
    assert len(images) == 3
    chosen = [NAMES[1], "amd64.sock", *(relay.host for relay in replicated.relays.values())]
    assert not [word for word in chosen if word.removeprefix("tcp://") in json.dumps(images)]
    output = project.up().output
    after = replicated.builds()
    shared = {name: f"slipway-runners-build/{name}" for name in NAMES}
    order = Replicas("linux/amd64", dict.fromkeys(shared.values(), ""), LINKS).order
    assert {name for name in NAMES if after[name] > before[name]} == set(NAMES)
    project.preview("--expect-no-changes")

    # One that is gone costs its build, and shows in no preview.
    gone = next(name for name in NAMES if shared[name] == order("link2")[0])
    replicated.relays[gone].__exit__(None, None, None)
    project.preview("--expect-no-changes")
    project.write("dockerfiles/link2/file.txt", f"other {project.path}\n")
    taken = project.up().output
    address = replicated.relays[gone].host.removeprefix("tcp://")
    assert f"slipway:runners.build: {shared[gone]}: no answer at tcp://{address}: " in taken
    assert "other replicas take its images" in taken
    takes = next(name for name in NAMES if shared[name] == order("link2")[1])
    assert replicated.builds()[takes] > after[takes]
    project.preview("--expect-no-changes")
    assert "PRIVATE KEY" not in output + taken + project.pulumi("stack", "export", "-s", "t").stdout

    # Fewer replicas take nothing away but themselves.
    replicated.configure(2, word="two")
    steps = replicated.steps()
    assert of_replicas(steps, "delete") == sorted(OF_REPLICA)
    assert {name for operation, _, name in steps if operation == "delete"} == {
        name for name in (each for _, _, each in steps) if "-2" in name
    }
    assert {(operation, typ) for operation, typ, _ in steps if operation != "delete"} == {
        ("update", typ) for typ in SHARED
    }


@pytest.mark.skipif(OFFICIAL, reason="it asks the engine at a preview")
@pytest.mark.parametrize("replicated", [OF_BOTH], indirect=True, ids=["both"])
def test_pools_of_both_platforms_build_each_its_images(replicated: ReplicatedProject) -> None:
    project = replicated.project
    both = {"platforms": ["linux/amd64", "linux/arm64"]}
    own, other = replicated.pool("build"), replicated.pool("build-arm64", "build-arm64-1")

    one = {**own, "platforms": {"linux/arm64": replicated.pool("build-arm64")}}
    replicated.write(one, **both)
    project.up()
    first = replicated.builds()
    assert first["build"] > 0
    assert first["build-arm64"] > 0
    images = project.outputs()["images"]
    for name in LINKS:
        machines = {
            platform: project.config_of(part["ref"])["architecture"]
            for platform, part in images[name]["platforms"].items()
        }
        assert machines == {"linux/amd64": "amd64", "linux/arm64": "arm64"}
    project.preview("--expect-no-changes")

    # Another replica of one platform touches no image, and nothing of the other platform.
    replicated.write({**own, "platforms": {"linux/arm64": other}}, **both)
    steps = replicated.steps()
    assert of_replicas(steps, "create") == sorted(OF_REPLICA)
    assert {step for step in steps if step[0] != "create"} == {
        ("update", "kubernetes:core/v1:ResourceQuota", "runners-resourcequota-build"),
        ("update", "pulumi:providers:docker", "runners-engine-arm64"),
        ("update", "slipway:runners:KubernetesRunners", "runners"),
    }
    project.up()
    after = replicated.builds()
    assert after == {**first, "build-arm64-1": 0}
    assert project.outputs()["images"] == images

    # An image that changes is built by its platform's daemons; the index waits for both.
    project.write("dockerfiles/link2/file.txt", f"other {project.path}\n")
    project.up()
    changed = replicated.builds()
    assert changed["build"] > after["build"]
    assert changed["build-arm64"] + changed["build-arm64-1"] > after["build-arm64"]

    # Without its pool, the platform has to be left out as well.
    replicated.write(own, **both)
    refused = project.up(check=False)
    assert refused.returncode != 0
    assert "give slipway:runners.build.platforms a pool for linux/arm64, or slipway:engines an engine" in refused.output
    replicated.write(own, platforms=["linux/amd64"])
    project.up()
    left = replicated.builds()
    assert {name for name in OF_BOTH if left[name] > changed[name]} == {"build"}
    assert "platforms" not in project.outputs()["images"]["link0"]
