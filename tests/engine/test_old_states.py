"""States that commit 25ac601 wrote, under today's code: contexts and tags of images move once, and what runners may do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.engine.old_stacks import STACKS, old_state
from tests.engine.project import Project

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
IMAGE = {"docker:index/image:Image", "slipway:image:ImageVariant"}
UPDATED = {
    "products": IMAGE | {"slipway:image:BuildProduct", "pulumi-python:dynamic/image:Published"},
    "signed": IMAGE
    | {f"pulumi-python:dynamic/image:{name}" for name in ("ExtraTag", "Provenance", "Sbom", "Signature")},
    "ecr": IMAGE | {"pulumi-python:dynamic/image:ExtraTag"},
    "kubernetes": IMAGE
    | {
        "slipway:runners:KubernetesRunners",
        "kubernetes:apps/v1:Deployment",
        "kubernetes:core/v1:ResourceQuota",
        "kubernetes:helm.sh/v3:Release",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "pulumi-python:dynamic/runners:Reached",
        "pulumi:providers:docker",
        "kubernetes:policy/v1:PodDisruptionBudget",
    },
    "ec2": IMAGE
    | {f"pulumi-python:dynamic/runners:{name}" for name in ("Asleep", "Awake")}
    | {"aws:autoscaling/group:Group", "aws:ec2/launchTemplate:LaunchTemplate", "aws:lambda/function:Function"}
    | {"aws:iam/rolePolicy:RolePolicy"},
}
"""By stack: the types of the resources that are updated, which are images, what has their names or digests, and runners."""
VOLUME = "kubernetes:core/v1:PersistentVolumeClaim"
OTHERS = {
    # Registrations were parameters.
    "ec2": {("create", "aws:dynamodb/table:Table")},
    "kubernetes": {
        # Kubernetes lets no job have another image.
        ("replace", "kubernetes:batch/v1:Job"),
        # An image is tried before the service has it.
        ("create", "kubernetes:batch/v1:Job"),
        # Jobs had the key of the build service, and its layers.
        ("replace", "pulumi-python:dynamic/runners:Certificates"),
        ("replace", "kubernetes:core/v1:Secret"),
        ("delete", "kubernetes:core/v1:Secret"),
        ("delete", "kubernetes:networking.k8s.io/v1:NetworkPolicy"),
        ("delete", VOLUME),
        ("create", VOLUME),
        # A drain waits for a check.
        ("create", "kubernetes:policy/v1:PodDisruptionBudget"),
    },
}
"""By stack: other operations, and the types of their resources."""

RENEWED = {"signed": {("update", "pulumi-python:dynamic/image:Signature")}}
"""By stack: what a refresh has the next update do again: signatures that state neither tag nor fingerprint."""

QUICK = {"kubernetes", "signed"}
"""The stacks whose states `make test` updates."""
KINDS = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in STACKS]


def previewed(project: Project) -> set[tuple[str, str]]:
    """Return the operations of a preview that change something, and the type of the resource of each."""
    steps = json.loads(project.preview("--json").stdout)["steps"]
    return {(step["op"], step["urn"].split("::")[2].rpartition("$")[2]) for step in steps if step["op"] != "same"}


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_old_state_are_updated_once(tmp_path: Path, kind: str) -> None:
    with STACKS[kind](tmp_path) as (project, configure):
        configure()
        project.up()
        (tmp_path / "old.json").write_text(old_state(kind, project))
        project.pulumi("stack", "import", "-s", "t", "--file", str(tmp_path / "old.json"))
        assert previewed(project) == {
            *(("update", updated) for updated in UPDATED[kind]),
            *OTHERS.get(kind, ()),
        }
        project.up()
        project.preview("--expect-no-changes")
        refreshed = project.refresh().output
        if kind in RENEWED:
            assert previewed(project) == RENEWED[kind]
            project.up()
            refreshed = project.refresh().output
        assert UNCHANGED.search(refreshed), refreshed
        configure(word="two")
        updated = project.up().output
        assert "Failed" not in updated
        project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
