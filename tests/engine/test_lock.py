"""A parent that others publish, locked to its digest: what a preview shows when its tag moves."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.engine.project import MANIFESTS, Project
from tests.helpers import registry_api


def publish(project: Project, ref: str) -> None:
    """Let the tag ``1`` of a pushed image stand for a digest, as somebody upstream would."""
    manifest = project.manifest(ref)
    address = f"{project.registry}/{project.path}/link0/manifests/1"
    kind = next(kind for kind in MANIFESTS.split(", ") if kind.encode() in manifest)
    assert registry_api.send("PUT", address, manifest, {"Content-Type": kind}).status_code == 201


def lock(project: Project, *options: str) -> str:
    command = [sys.executable, "-m", "stacks", "lock", "t", *options]
    return subprocess.run(
        command, cwd=project.root, env=project.environment, capture_output=True, text=True, check=True
    ).stdout


def test_moved_parent_is_previewed_after_upgrade(project: Project) -> None:
    project.up()
    first = project.outputs()["images"]["link0"]["ref"]
    project.write("dockerfiles/link0/file.txt", "upstream's next\n")
    project.up()
    second = project.outputs()["images"]["link0"]["ref"]

    publish(project, first)
    parent = f"{project.registry}/{project.path}/link0:1"
    project.configure(base=parent)
    assert f"{parent}: {first.partition('@')[2]}" in lock(project)
    project.up()
    publish(project, second)
    assert re.search(r"Resources:\n\s+\d+ unchanged", project.preview().output)

    was, now = (f"{parent}@{ref.partition('@')[2]}" for ref in (first, second))
    assert f"{first.partition('@')[2]} -> {second.partition('@')[2]}" in lock(project, "--upgrade")
    preview = project.preview().output
    assert re.search(rf'~ BASE_IMAGE *: *"{was}" => "{now}"', preview), preview
    project.up()
    assert project.outputs()["plan"]["link0"]["args"]["BASE_IMAGE"] == now
