"""Pulumi.yaml's config block is the models' own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

from cli.generated import pulumi_project
from stacks import flavors
from stacks.config.stack_file import NAMESPACE, ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_committed_block_is_current() -> None:
    text = (ROOT / "Pulumi.yaml").read_text()
    assert text.endswith(pulumi_project.config_block()), "run `slipway schema`"


def test_types_and_defaults_come_from_the_models() -> None:
    entries = yaml.safe_load(pulumi_project.config_block())["config"]
    assert entries["slipway:publish"]["type"] == "boolean"
    assert entries["slipway:publish"]["default"] is True
    assert entries["slipway:platform"]["default"] == "linux/amd64"
    assert "default" not in entries["slipway:flavor"]
    assert all(entry["description"] for entry in entries.values())


def test_writing_twice_changes_nothing(tmp_path: Path) -> None:
    project = tmp_path / "Pulumi.yaml"
    project.write_text("name: x\n")
    assert pulumi_project.write(project)
    assert not pulumi_project.write(project)
    assert yaml.safe_load(project.read_text())["name"] == "x"


def test_the_readme_tells_of_every_key_and_of_no_other() -> None:
    rows = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `slipway:"))
    told = [key for row in rows for key in re.findall(r"`(slipway:\w+)`", row.split(" | ")[0])]
    fields = (flavors.flavor(name).Config.model_fields for name in flavors.names())
    keys = {f"{NAMESPACE}:{field.alias}" for of_flavor in fields for field in of_flavor.values()}
    assert sorted(told) == sorted(keys)
