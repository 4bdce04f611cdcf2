"""What holds for the workflows that `slipway init` writes, as for those of this repository."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ci import arguments
from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import WORKFLOWS, workflow
from toolchain.release.own_repository import TEMPLATE

NAMES = ("preview.yml", "publish.yml", "up.yml")
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
        if "steps" not in job:
            continue
        assert lines[:-1] == READY
        module, _, words = re.sub(r'"[^"]*"', "x", lines[-1]).partition(" -m ci ")
        assert module == ".slipway/venv/bin/python"
        assert arguments._parser().parse_args(words.split()).verb == words.split()[0]
        assert "${{" not in lines[-1]


def test_preview_of_a_fork_has_no_secret_and_only_reads() -> None:
    assert not re.search(r"\b(secrets|vars|github\.token|environment:|inherit)\b", text("preview.yml"))
    for job in jobs("preview.yml").values():
        assert set(job["permissions"].values()) == {"read"}


def test_secret_is_in_the_publishing_step_alone() -> None:
    for job in jobs("up.yml").values():
        assert job["environment"] == "publish"
        secret = ["secrets." in str(step) for step in job["steps"]]
        assert secret.count(True) == 1
        assert " -m ci publish " in job["steps"][secret.index(True)]["run"]


def test_called_workflow_gets_what_it_declares() -> None:
    call, declared = jobs("publish.yml")["publish"], workflow(TEMPLATE, "up.yml")["on"]["workflow_call"]
    assert call["uses"] == "./.github/workflows/up.yml"
    assert call["with"].keys() == declared["inputs"].keys()
    assert call["secrets"].keys() == declared["secrets"].keys()
