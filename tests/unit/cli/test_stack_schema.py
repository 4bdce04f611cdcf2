"""The JSON schema of stack files: it accepts every stack, and refuses what an editor should underline."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import yaml

from cli.keys import stack_schema
from stacks import flavors
from stacks.config.model import keys as model_keys
from stacks.config.stack_file import ROOT, stack_file, stack_names
from tests.helpers.every import every


def mistakes(config: Any) -> list[str]:
    schema = json.loads(stack_schema.PATH.read_text())
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors({"config": config})]


def test_schema_committed_is_current() -> None:
    assert stack_schema.PATH.read_text() == stack_schema.text(), "run `python -m maintenance schema`"


def test_schema_is_valid_draft_7() -> None:
    jsonschema.Draft7Validator.check_schema(stack_schema.document())


@every("stack", stack_names())
def test_schema_stack_file_passes(stack: str) -> None:
    assert mistakes(yaml.safe_load(stack_file(stack).read_text())["config"]) == []


@every(
    "config",
    [
        {"slipway:flavor": "base", "slipway:maxJobs": 4, "aws:region": "eu-west-1"},
        {"slipway:flavor": "base", "slipway:cuda": 12.1, "slipway:extras": {"apex": False}},
        {"slipway:flavor": "base", "slipway:archList": [8.0, "9.0+PTX"], "slipway:budgets": {"torch": "3.5 GB"}},
        {"slipway:flavor": "efa", "slipway:nccl": False},
        {"slipway:flavor": "megatron", "slipway:launcher": "24.12"},
        {"slipway:flavor": "universal", "slipway:train": [{"env": {"DEBUG": True, "LEVEL": 2}}]},
        {
            "slipway:flavor": "local",
            "slipway:registry": {"kind": "generic", "repository": "a.example/b", "password": {"secure": "v1:x"}},
        },
    ],
)
def test_schema_value_that_models_take_passes(config: dict[str, Any]) -> None:
    assert mistakes(config) == []


@every(
    "config",
    [
        {},
        {"slipway:flavor": "bsae"},
        {"slipway:flavor": "base", "slipway:cudda": "12.1.1"},
        {"slipway:flavor": "base", "slipway:nccl": "2.30.4-1"},
        {"slipway:flavor": "base", "slipway:torch": {"versoin": "2.0.1"}},
        {"slipway:flavor": "base", "slipway:torch": {"source": "wheels"}},
        {"slipway:flavor": "base", "slipway:publish": "maybe"},
        {"slipway:flavor": "base", "slipway:platform": "linux/s390x"},
        {"slipway:flavor": "base", "slipway:maxJobs": "many"},
        {"slipway:flavor": "base", "slipway:extras": {"apex": True}},
        {"slipway:flavor": "base", "slipway:registry": {"repository": "a.example/b"}},
        {"slipway:flavor": "base", "slipway:registry": {"kind": "ghcr", "repository": "ghcr.io/a", "account": "1"}},
        {"slipway:flavor": "runners"},
    ],
)
def test_schema_mistake_is_found_once(config: dict[str, Any]) -> None:
    assert len(mistakes(config)) == 1


def test_schema_describes_every_key_of_models() -> None:
    for flavor in flavors.names():
        text = json.dumps(stack_schema.flavor_schema(flavor))
        for key, field in model_keys(flavors.flavor(flavor).Config):
            assert json.dumps(field.description)[1:-1] in text or key == "flavor", key


def test_editor_settings_name_the_schema() -> None:
    settings = json.loads((ROOT / ".vscode" / "settings.json").read_text())
    assert settings["yaml.schemas"] == {"./stacks/stack.schema.json": "stacks/Pulumi.*.yaml"}
