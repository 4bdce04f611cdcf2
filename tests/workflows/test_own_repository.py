"""What holds for the workflows that `slipway init` writes, as for those of this repository."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ci import arguments
from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import WORKFLOWS, workflow
from tests.fakes.github.expressions import evaluate
from toolchain.release.own_repository import TEMPLATE

NAMES = ("preview.yml", "publish.yml", "up.yml", "warm.yml")
READY = [
    "python3 -m venv .slipway/command",
    ".slipway/command/bin/pip install --require-hashes -r requirements.txt",
    ".slipway/command/bin/slipway check",
]
"""The steps that have the pinned release, and nothing else."""


def text(name: str) -> str:
    return (TEMPLATE / WORKFLOWS / name).read_text()


def jobs(name: str) -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = workflow(TEMPLATE, name)["jobs"]
    return read


def test_workflows_of_the_template_are_these() -> None:
    assert sorted(path.name for path in (TEMPLATE / WORKFLOWS).iterdir()) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_action_has_the_commit_that_ours_has(name: str) -> None:
    ours = "".join(path.read_text() for path in (ROOT / WORKFLOWS).glob("*.yml"))
    pins = re.findall(r"uses: (?!\./)(\S+@[0-9a-f]{40} # v[0-9.]+)$", text(name), re.MULTILINE)
    assert len(pins) == len(re.findall(r"uses: (?!\./)", text(name)))
    assert all(pin in ours for pin in pins)


@pytest.mark.parametrize("name", NAMES)
def test_job_runs_the_pinned_release_alone(name: str) -> None:
    assert workflow(TEMPLATE, name)["permissions"] == {}
    for job in jobs(name).values():
        lines = [step["run"] for step in job.get("steps", []) if "run" in step]
        if "steps" not in job or "container" in job:  # a pod of the published image has no release
            continue
        assert lines[:3] == READY
        assert lines[3:]
        for line in lines[3:]:
            module, _, words = re.sub(r'"[^"]*"', "x", line).partition(" -m ci ")
            assert module == ".slipway/venv/bin/python"
            assert arguments._parser().parse_args(words.split()).verb == words.split()[0]
            assert "${{" not in line


def test_preview_of_a_fork_has_no_secret_and_only_reads() -> None:
    assert not re.search(r"\b(secrets|vars|github\.token|environment:|inherit)\b", text("preview.yml"))
    for job in jobs("preview.yml").values():
        assert set(job["permissions"].values()) == {"read"}


def test_secret_is_in_the_publishing_step_alone() -> None:
    for job in jobs("up.yml").values():
        assert job["environment"] == "publish"
        for warm in (False, True):
            ran = [step for step in job["steps"] if evaluate(step.get("if", "true"), {"inputs": {"warm": warm}})]
            (step,) = [step for step in ran if "secrets." in str(step)]
            pushed = "push-warm" if warm and "matrix" not in str(job) else "publish"
            assert f" -m ci {pushed} " in step["run"]


@pytest.mark.parametrize(("name", "job"), [("publish.yml", "publish"), ("warm.yml", "warm")])
def test_called_workflow_gets_what_it_declares(name: str, job: str) -> None:
    call, declared = jobs(name)[job], workflow(TEMPLATE, "up.yml")["on"]["workflow_call"]
    assert call["uses"] == "./.github/workflows/up.yml"
    required = {key for key, about in declared["inputs"].items() if about.get("required")}
    assert required <= call["with"].keys() <= declared["inputs"].keys()
    state = {"PULUMI_CONFIG_PASSPHRASE"} if job == "warm" else set()
    assert {*call["secrets"]} == {*declared["secrets"]} - state


def test_warm_layer_is_made_as_in_a_fork() -> None:
    """But for what has the release, and who signs: there is no `attest`."""
    fork = (ROOT / WORKFLOWS / "warm.yml").read_text()
    ready = "".join(f"      - run: {line}\n" for line in READY)
    fork = fork.replace("      - run: python3 -m toolchain packages\n", ready).replace("/attest.yml", "/up.yml")
    assert text("warm.yml") == fork.replace("      actions: read # who hosts the machines of this run\n", "")
