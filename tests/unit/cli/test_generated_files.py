"""Generated files: current and complete."""

from __future__ import annotations

import re
import shlex

import click

from cli.command_line import HELP, Command
from cli.keys.key import owners
from cli.main import slipway
from maintenance.generated import commands_reference, configuration_reference, generated_files
from stacks import flavors
from stacks.config.model import keys as model_keys
from tests.helpers.every import every

COMMANDS = [command for commands in slipway.sections.values() for command in commands]


def test_files_committed_are_current_and_stay() -> None:
    files = {**generated_files.schemas(), **generated_files.pages(slipway)}
    stale = [path.as_posix() for path, text in files.items() if path.read_text() != text]
    assert stale == [], "run `python -m maintenance docs` and `python -m maintenance schema`"
    assert generated_files.write(files) == []


def test_configuration_reference_has_every_key_of_models() -> None:
    page = configuration_reference.text().replace("[]", "").replace(".<name>", "")
    for flavor in flavors.names():
        for key, field in model_keys(flavors.flavor(flavor).Config):
            assert f"| `slipway:{key.replace('.*', '')}`" in page, key
            assert (field.description or "").replace("|", "\\|") in page or key == "flavor", key


def test_advanced_keys_are_keys_of_a_flavor() -> None:
    names = {key.name for key in owners(flavors.names()) if not key.block}
    assert configuration_reference.ADVANCED - names == set()


def test_commands_reference_has_every_command_once() -> None:
    page = commands_reference.text(slipway)
    assert sorted(line.removeprefix("### slipway ") for line in page.splitlines() if line.startswith("### ")) == sorted(
        name for name, command in slipway.commands.items() if not command.hidden
    )


@every("command", COMMANDS)
def test_command_has_examples_that_parse(command: click.Command) -> None:
    assert isinstance(command, Command)
    assert command.examples
    for line, _ in command.examples:
        words = shlex.split(re.split("[|<>]", line.replace('eval "$(', "").replace(')"', ""))[0])
        assert words[:2] == ["slipway", command.name]
        with command.make_context("slipway", words[2:], **HELP):
            pass
