"""The stacks of runners as they stand, previewed by the real engine: no cluster is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.cluster.conftest import OFFICIAL, RunnersProject


@pytest.mark.parametrize(
    ("stack", "scale_set", "devices"),
    [("runners-eks", "slipway-runners", ("gpu", "efa")), ("runners-aks", "slipway-runners-aks", ("gpu", "ib"))],
)
def test_preview_lists_runners_without_a_cluster(
    tmp_path: Path, stack: str, scale_set: str, devices: tuple[str, str]
) -> None:
    project = RunnersProject(tmp_path / "project", "unused", tmp_path / "no-kubeconfig", tmp_path)
    text = (ROOT / f"stacks/Pulumi.{stack}.yaml").read_text()
    if OFFICIAL:  # it loads the charts, and no registry of them is reached
        text = text.replace("kind: kubernetes", "kind: kubernetes\n    arc: {charts: charts}")
    project.write("stacks/Pulumi.t.yaml", text)
    project.add_stack()
    output = project.preview("--diff").output
    assert "error" not in output
    for kind in ("Namespace", "ResourceQuota", "NetworkPolicy", "PodDisruptionBudget", "PriorityClass", "Release"):
        assert re.search(rf"\+ kubernetes:\S+:{kind}: \(create\)", output), output
    assert all(re.search(rf"requests\.\S+/{device} *: ", output) for device in devices), output
    assert re.search(rf'scaleSet *: "{scale_set}"', output)
