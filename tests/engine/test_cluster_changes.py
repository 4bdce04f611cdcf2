"""What a changed key of the runners on a cluster does to what is there, by the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.old_stacks import on_folder

pytestmark = pytest.mark.slow

ACME = "https://github.com/acme"


def up(project: Any, url: str = ACME, **runners: Any) -> str:
    """Deploy runners; return the engine's report of what it replaced."""
    github = {"url": url, "secret": "github"}
    runners = {"kind": "kubernetes", "profile": "eks-p5", "github": github, **runners}
    project.configure(flavor="runners", runners=runners)
    return str(project.up().output)


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
