"""A flavor of one's own that is broken: one line, and nothing else stops."""

from __future__ import annotations

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


@pytest.fixture
def slipway(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command in a copy of the checkout with three stacks."""
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
    (tmp_path / "stacks/Pulumi.mine.yaml").write_text("config:\n  slipway:flavor: own\n")

    def run(*words: str, program: str = "stacks") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def test_broken_flavors_are_a_line_each_and_stop_theirs(
    slipway: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "stacks/Pulumi.mine.yaml").unlink()
    for name, (text, _) in BROKEN.items():
        (tmp_path / f"stacks/flavors/{name}.py").write_text(text.replace('"own"', f'"{name}"'))
        (tmp_path / f"stacks/Pulumi.of-{name}.yaml").write_text(f"config:\n  slipway:flavor: {name}\n")
    for word in ("check", "list"):
        done = slipway(word)
        assert done.returncode == 1
        lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
        assert len(lines) == len(BROKEN), done.stderr
        for name, (_, message) in BROKEN.items():
            [line] = [line for line in lines if line.startswith(f"stack of-{name}: ")]
            assert f"stacks/flavors/{name}" in line
            assert f"the flavor '{name}' is broken: " in line
            assert message in line
        assert "local" in done.stdout
        assert "base-cu132" in done.stdout


def test_broken_flavor_that_no_stack_has_is_named(
    slipway: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "stacks/flavors/own.py").write_text(BROKEN["syntax"][0])
    (tmp_path / "stacks/Pulumi.mine.yaml").unlink()
    done = slipway("check")
    assert done.returncode == 1
    assert "stacks/flavors/own.py:1: the flavor 'own' is broken: SyntaxError" in done.stderr
    for words in (("show", "local"), ("explain", "cuda"), ("new", "other", "--flavor", "local")):
        assert slipway(*words).returncode == 0


def test_schema_with_a_broken_flavor_is_not_written(
    slipway: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Else its keys would be gone from the schema."""
    (tmp_path / "stacks/flavors/own.py").write_text(BROKEN["gone_import"][0])
    before = (tmp_path / "stacks/stack.schema.json").read_text()
    done = slipway("schema", program="maintenance")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert (tmp_path / "stacks/stack.schema.json").read_text() == before
