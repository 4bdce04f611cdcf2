"""What a changed key of the runners on a cluster does to what is there, by the real engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.engine.folder_cluster import on_folder

pytestmark = pytest.mark.slow

ACME = "https://github.com/acme"


UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")


def configured(project: Any, url: str = ACME, **runners: Any) -> Any:
    """Write the runners' keys; return the project."""
    github = {"url": url, "secret": "github"}
    runners = {"kind": "kubernetes", "profile": "eks-p5", "github": github, **runners}
    project.configure(flavor="runners", runners=runners)
    return project


def up(project: Any, url: str = ACME, **runners: Any) -> str:
    """Deploy runners; return the engine's report of what it replaced."""
    return str(configured(project, url, **runners).up().output)


def labels(cluster: Path) -> list[str]:
    release = json.loads((cluster / "Release-slipway-runners-slipway-runners.json").read_text())
    return list(release["values"].get("scaleSetLabels", []))


def test_changed_label_makes_the_scale_set_anew(tmp_path: Path) -> None:
    project, cluster = on_folder(tmp_path)
    up(project)
    assert "1 replaced" in up(project, labels=["gpu"])
    assert labels(cluster) == ["slipway-runners", "gpu"]
    assert "1 replaced" in up(project, labels=["gpu", "h100"])
    assert labels(cluster) == ["slipway-runners", "gpu", "h100"]
    assert "1 replaced" in up(project, "https://github.com/other", labels=["gpu", "h100"])
    assert "replaced" not in up(project, "https://github.com/other", labels=["gpu", "h100"], maxRunners=9, group="ml")
    assert "1 replaced" in up(project)


def test_kubeconfig_may_be_elsewhere_on_the_next_machine(tmp_path: Path) -> None:
    """A refresh and a destroy take the provider's settings from the state."""
    project, _ = on_folder(tmp_path)
    up(project)
    exported = project.pulumi("stack", "export", "-s", "t").stdout
    assert "runners-cluster" in exported
    assert project.environment["KUBECONFIG"] not in exported
    project.environment["KUBECONFIG"] = str(tmp_path / "elsewhere")
    assert UNCHANGED.search(up(project))


def test_another_context_is_another_cluster(tmp_path: Path) -> None:
    """Or the same one, as here, of another name: nothing that is new may go with the old."""
    project, cluster = on_folder(tmp_path)
    up(project)
    assert "replaced" not in up(project, context="one")  # which is taken for the one that the stack is in
    assert UNCHANGED.search(up(project, context="one"))
    steps = json.loads(configured(project, context="two").preview("--json").stdout)["steps"]
    replaced = {step["urn"].rpartition("::")[2] for step in steps if step["op"] == "replace"}
    assert {"runners-cluster", "runners-namespace-slipway-runners", "runners-gha-runner-scale-set"} <= replaced
    before = sorted(cluster.iterdir())
    project.up()
    assert sorted(cluster.iterdir()) == before


def test_build_service_follows_its_image_and_is_awaited(tmp_path: Path) -> None:
    project, _ = on_folder(tmp_path)
    up(project, build={"jobs": True, "nodeSelector": {"acme.example/pool": "builds"}}, grace=30)
    resources = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)["deployment"]["resources"]
    limits = {each["urn"].rpartition("::")[2]: each.get("customTimeouts") for each in resources}
    assert limits["runners-deployment-build"] == {"update": 2400, "delete": 2400}
    (daemon,) = [each for each in resources if each["urn"].endswith("::runners-deployment-build")]
    assert [each for each in daemon["dependencies"] if each.endswith("::runners-job-build-image")]
