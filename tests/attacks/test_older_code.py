"""Code that nobody reviewed, in a commit in the middle of a branch: no command of a maintainer or of CI runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.program_copy import copy_folders
from tests.helpers.sample_repository import BUILD, DOCKERFILE, STACK, Checkout, config, make

SECRETS = (
    "COSIGN_PRIVATE_KEY",
    "COSIGN_PASSWORD",
    "GITHUB_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "PULUMI_CONFIG_PASSPHRASE",
)
CANARY = "canary-of-a-secret"

THEFT = """
import os, pathlib
pathlib.Path({loot!r}).write_bytes(
    b"".join(pathlib.Path("/proc", str(pid), "environ").read_bytes() for pid in (os.getpid(), os.getppid()))
)
"""
"""Code that keeps the environment of its process, and of the one that started it."""

PLACES = {
    "package": "stacks/__init__.py",
    "flavor": "stacks/flavors/local.py",
    "plan": "stacks/plan.py",
    "sitecustomize": "stacks/sitecustomize.py",
    "top": "sitecustomize.py",
    "conftest": "conftest.py",
    "shadowed": "json.py",
}
"""Files that Python would run by itself, or on an import."""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    sample = make(tmp_path / "repo")
    sample.git("init", "-q", "-b", "main")
    sample.commit("README.md", "one\n")
    return sample


def attack(checkout: Checkout, place: str, loot: Path, *, taken_out: bool) -> None:
    """Commit code with a changed Dockerfile; if it is ``taken_out`` again, the Dockerfile alone stays changed."""
    path = checkout.root / PLACES[place]
    before = path.read_text() if path.exists() else None
    future = "from __future__ import annotations\n"
    text = f"{future if before else ''}{THEFT.format(loot=str(loot))}{(before or '').replace(future, '')}"
    checkout.write(DOCKERFILE, f"{BUILD}ENV A=b\n")
    checkout.commit(PLACES[place], text)
    if not taken_out:
        return
    if before is None:
        path.unlink()
    else:
        path.write_text(before)
    checkout.git("commit", "-qam", "take the code out")


def run(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, CANARY)
    command = [sys.executable, "-m", "stacks", *words]
    done = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("place", "way"),
    [
        *(pytest.param(place, "merge", marks=[] if place == "plan" else pytest.mark.slow) for place in PLACES),
        ("package", "rebase"),
        pytest.param("plan", "revert", marks=pytest.mark.slow),
    ],
)
def test_code_of_a_middle_commit_never_runs(
    place: str, way: str, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loot = tmp_path / "loot"
    if way == "merge":
        checkout.git("switch", "-q", "-c", "side")
    attack(checkout, place, loot, taken_out=way != "revert")
    if way == "merge":
        checkout.git("switch", "-q", "main")
        checkout.commit("NOTES.md", "meanwhile\n")
        checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    if way == "revert":
        checkout.git("revert", "--no-edit", "HEAD")
    checkout.commit("dockerfiles/torch/README.md", "ignored\n")
    run(checkout, monkeypatch, "show", "local", "--json")
    run(checkout, monkeypatch, "check")
    for commit in checkout.git("rev-list", "HEAD").split()[1:4]:
        run(checkout, monkeypatch, "affected", "--since", commit, "--json")
    assert not loot.exists()


@pytest.mark.parametrize("way", ["merge", "rebase", "revert", "squash"])
def test_publish_never_runs_code_of_a_middle_commit(
    way: str, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb of the workflow plans with every secret, and ends at the state that is not there."""
    loot = tmp_path / "loot"
    copy_folders(checkout.root, "ci", "components", "toolchain")
    checkout.commit("NOTES.md", "before\n")
    checkout.git("switch", "-q", "-c", "side")
    attack(checkout, "package", loot, taken_out=way != "revert")
    if way == "revert":
        checkout.git("revert", "--no-edit", "HEAD")
    checkout.git("switch", "-q", "main")
    checkout.commit("NOTES.md", "meanwhile\n")
    if way in {"merge", "revert"}:
        checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    elif way == "squash":
        checkout.git("merge", "-q", "--squash", "side")
        checkout.git("commit", "-q", "-m", "squashed")
    else:
        checkout.git("rebase", "-q", "main", "side")
        checkout.git("switch", "-q", "main")
        checkout.git("merge", "-q", "--ff-only", "side")
    for name in SECRETS:
        monkeypatch.setenv(name, CANARY)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    command = [sys.executable, "-m", "ci", "publish", "local"]
    done = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("PULUMI_BACKEND_URL is not set; "), done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert not loot.exists()


def test_hook_of_a_middle_commits_attributes_never_runs(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit's attributes name a driver, and its `.gitconfig` says what that would run."""
    loot = tmp_path / "loot"
    driver = f"touch {loot}; cat"
    checkout.write(".gitattributes", "* filter=theft diff=theft export-subst\n")
    checkout.write(".gitconfig", f'[filter "theft"]\n smudge = {driver}\n[core]\n fsmonitor = {driver}\n')
    checkout.write(".gitmodules", f'[submodule "x"]\n path = x\n url = ./x\n update = !{driver}\n')
    checkout.commit(STACK, config("2.14.0"))
    for name in (".gitattributes", ".gitconfig", ".gitmodules"):
        (checkout.root / name).unlink()
    checkout.git("commit", "-qam", "take it out")
    run(checkout, monkeypatch, "show", "local", "--json")
    run(checkout, monkeypatch, "affected", "--since", "HEAD~1", "--json")
    assert not loot.exists()
