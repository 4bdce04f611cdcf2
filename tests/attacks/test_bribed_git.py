"""A clone's configuration names programs: git, which Pulumi starts, would run them with Pulumi's secrets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.sample_repository import Checkout as Clone
from toolchain import environment
from toolchain.checkout import Checkout
from toolchain.pulumi_run import stack_command

SECRETS = (
    "SLIPWAY_REGISTRY_PASSWORD",
    "GITHUB_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AWS_SECRET_ACCESS_KEY",
    "PULUMI_ACCESS_TOKEN",
    "INDEX_PASSWORD",
    "build.secret",
)
CANARY = "canary-of-a-secret"
THEFT = "#!/bin/sh\ncat /proc/self/environ >> {loot}\n{end}\n"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """A small program of Pulumi with the stack ``t`` in a repository, and canaries in the environment."""
    created = Clone(tmp_path / "clone")
    runtime = f"{{name: python, options: {{virtualenv: {sys.prefix}}}}}"
    created.write("Pulumi.yaml", f"name: slipway\nruntime: {runtime}\nstackConfigDir: stacks\n")
    created.write("stacks/Pulumi.t.yaml", "config: {}\n")
    created.write("__main__.py", "import pulumi\n\npulumi.export('a', 1)\n")
    created.write(".gitignore", ".slipway\n__pycache__\n")
    created.git("init", "-q", "-b", "main")
    created.commit("README.md", "one\n")
    for name in SECRETS:
        monkeypatch.setenv(name, CANARY)
    return created


def preview(clone: Clone) -> None:
    checkout = Checkout(clone.root)
    environment.save(checkout, [])
    assert stack_command.preview(checkout, "t", environment.variables(checkout, [])) == 0


def program(clone: Clone, name: str, end: str) -> tuple[Path, Path]:
    """Write a program that keeps its environment; return it, and where it keeps that."""
    loot, thief = clone.root.parent / "loot", clone.root.parent / name
    thief.write_text(THEFT.format(loot=loot, end=end))
    thief.chmod(0o755)
    return thief, loot


@pytest.mark.skipif(not shutil.which("pulumi-language-python"), reason="Pulumi's Python host is not on PATH")
@pytest.mark.parametrize("kind", ["fsmonitor", "hook", "filter"])
def test_git_of_pulumi_gives_no_secret_to_a_clones_programs(kind: str, clone: Clone) -> None:
    match kind:
        case "fsmonitor":
            thief, loot = program(clone, "fsmonitor", "exit 1")
            clone.git("config", "core.fsmonitor", str(thief))
        case "hook":
            thief, loot = program(clone, "post-index-change", "exit 0")
            shutil.copy(thief, clone.root / ".git/hooks/post-index-change")
        case _:
            thief, loot = program(clone, "clean", "cat")
            clone.git("config", "filter.x.clean", str(thief))
            clone.write(".git/info/attributes", "* filter=x\n")
    os.utime(clone.root / "README.md", (1, 1))
    preview(clone)
    stolen = loot.read_text() if loot.exists() else ""
    assert CANARY not in stolen
    assert kind == "filter" or not stolen


def test_trimmed_git_is_the_machines_own(clone: Clone) -> None:
    """It takes arguments and the variables of git, passes its status on, and ends in no circle."""
    variables = environment.variables(Checkout(clone.root), [])
    words = ["git", "-c", "alias.x=!echo $GIT_AUTHOR_NAME; env; exit 3", "x"]
    done = subprocess.run(
        words, cwd=clone.root, env={**variables, "GIT_AUTHOR_NAME": "a b"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stdout.startswith("a b\n")
    assert CANARY not in "\n".join(row for row in done.stdout.splitlines() if not row.startswith("AWS_"))
