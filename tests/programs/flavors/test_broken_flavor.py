"""A flavor of one's own that is broken: one line, and nothing else stops."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT

HEAD = """
from typing import Literal
from stacks.config.stack_config import StackConfig
"""
CONFIG = f"""{HEAD}
class Config(StackConfig):
    flavor: Literal["own"] = "own"
"""
BROKEN = {
    "gone_import": ("from stacks.spec import Gone\n", "ImportError: cannot import name 'Gone'"),
    "syntax": ("class Config(\n", "SyntaxError: '(' was never closed"),
    "raising": ("raise RuntimeError('two\\nlines')\n", r"RuntimeError: two\nlines"),
    "no_images": (CONFIG, "it has no function images(config)"),
    "no_model": ("Config = 3\n", "Config is not a subclass of stacks.config.stack_config.StackConfig"),
    "failing_images": (f"{CONFIG}\ndef images(config): return config.gone\n", "AttributeError: "),
    "failing_validator": (
        (
            f"from pydantic import model_validator\n{CONFIG}\n"
            "    @model_validator(mode='after')\n    def _wrong(self):\n        raise KeyError('gone')\n\n"
            "def images(config): return []\n"
        ),
        "KeyError: 'gone'",
    ),
}
"""Flavors that cannot be loaded, or whose own code fails, and what is said of each."""


_RUN = """
import contextlib, io, json, sys
from cli.main import main
from maintenance.commands import maintenance
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(words, *[maintenance] * (words == ["schema"]))
    print(json.dumps([status, out.getvalue(), err.getvalue().splitlines()]))
"""
"""Runs commands in one process, of which each takes half a second to start."""


@pytest.fixture
def slipway(tmp_path: Path) -> Callable[..., list[tuple[int, str, list[str]]]]:
    """Return a function that runs commands in a copy of the checkout, which has two stacks."""
    for folder in ("containers", "cli", "maintenance"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    keep = {"Pulumi.local.yaml", "Pulumi.base-cu132.yaml"}
    shutil.copytree(
        ROOT / "stacks",
        tmp_path / "stacks",
        ignore=lambda _, names: [name for name in names if name.startswith("Pulumi.") and name not in keep],
    )
    (tmp_path / "Pulumi.yaml").symlink_to(ROOT / "Pulumi.yaml")
    (tmp_path / "dockerfiles").symlink_to(ROOT / "dockerfiles")

    def run(*commands: str) -> list[tuple[int, str, list[str]]]:
        words = json.dumps([command.split() for command in commands])
        done = subprocess.run(
            [sys.executable, "-c", _RUN, words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return [(status, out, err) for status, out, err in map(json.loads, done.stdout.splitlines())]

    return run


def test_broken_flavors_are_a_line_each_and_stop_theirs(
    slipway: Callable[..., list[tuple[int, str, list[str]]]], tmp_path: Path
) -> None:
    for name, (text, _) in BROKEN.items():
        (tmp_path / f"stacks/flavors/{name}.py").write_text(text.replace('"own"', f'"{name}"'))
        (tmp_path / f"stacks/Pulumi.of-{name}.yaml").write_text(f"config:\n  slipway:flavor: {name}\n")
    (tmp_path / "stacks/flavors/unused.py").write_text(BROKEN["syntax"][0])
    check, listed, *others = slipway("check", "list", "show local", "explain cuda", "new other --flavor local")
    for word, (status, out, err), more in (("check", check, 1), ("list", listed, 0)):
        assert status == 1, word
        lines = [line for line in err if not line.startswith("warning: ")]
        assert len(lines) == len(BROKEN) + more, (word, lines)
        for name, (_, message) in BROKEN.items():
            [line] = [line for line in lines if line.startswith(f"stack of-{name}: ")]
            assert f"stacks/flavors/{name}" in line
            assert f"the flavor '{name}' is broken: " in line
            assert message in line
        assert "local" in out
        assert "base-cu132" in out
    assert [
        line for line in check[2] if "stacks/flavors/unused.py:1: the flavor 'unused' is broken: SyntaxError" in line
    ]
    assert [status for status, _, _ in others] == [0, 0, 0], others


def test_schema_with_a_broken_flavor_is_not_written(
    slipway: Callable[..., list[tuple[int, str, list[str]]]], tmp_path: Path
) -> None:
    """Else its keys would be gone from the schema."""
    (tmp_path / "stacks/flavors/own.py").write_text(BROKEN["gone_import"][0])
    before = (tmp_path / "stacks/stack.schema.json").read_text()
    [(status, _, err)] = slipway("schema")
    assert (status, len(err)) == (1, 1)
    assert (tmp_path / "stacks/stack.schema.json").read_text() == before
