"""Pulumi.yaml's config block is the models' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from maintenance.generated import pulumi_project
from stacks.config.stack_file import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_config_block_committed_is_current() -> None:
    text = (ROOT / "Pulumi.yaml").read_text()
    assert text.endswith(pulumi_project.config_block()), "run `python -m maintenance schema`"


def test_config_block_has_types_and_defaults_of_models() -> None:
    entries = yaml.safe_load(pulumi_project.config_block())["config"]
    assert entries["slipway:publish"]["type"] == "boolean"
    assert entries["slipway:publish"]["default"] is True
    assert entries["slipway:platform"]["default"] == "linux/amd64"
    assert "default" not in entries["slipway:flavor"]
    assert all(entry["description"] for entry in entries.values())


def test_text_keeps_what_precedes_the_block(tmp_path: Path) -> None:
    project = tmp_path / "Pulumi.yaml"
    project.write_text("name: x\n")
    text = pulumi_project.text(project)
    assert text == f"name: x\n{pulumi_project.config_block()}"
    project.write_text(text)
    assert pulumi_project.text(project) == text
