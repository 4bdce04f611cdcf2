"""``slipway destroy`` of runners on a cluster, from what ``kubectl`` says of them; a script says it in its place here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.runners import hasty_destroy
from containers.errors import SlipwayError

RUNNERS = {"runners": {"kind": "kubernetes", "context": "mine"}}


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def says(folder: Path, sets: list[Any], jobs: tuple[str, ...] = (), controllers: int = 1) -> None:
    """Have kubectl list these scale sets, a runner with a job of each set named, and controllers."""
    runners = [
        {"metadata": {"labels": {"actions.github.com/scale-set-name": name}}, "status": {"jobId": "7"}} for name in jobs
    ]
    (folder / "sets.json").write_text(json.dumps({"items": [{"metadata": each} for each in sets]}))
    (folder / "runners.json").write_text(json.dumps({"items": runners}))
    (folder / "controllers.json").write_text(json.dumps({"items": [{}] * controllers}))
    script = f"""#!/bin/sh
case "$*" in
  "--context mine get autoscalingrunnersets.actions.github.com --namespace=slipway-runners "*) cat {folder}/sets.json;;
  "--context mine get ephemeralrunners.actions.github.com --namespace=slipway-runners "*) cat {folder}/runners.json;;
  "--context mine get deployments.apps --all-namespaces --selector=app.kubernetes.io/part-of=gha-rs-controller "*)
    cat {folder}/controllers.json;;
  *) exit 1;;
esac
"""
    (folder / "kubectl").write_text(script)
    (folder / "kubectl").chmod(0o755)


def refusal() -> str:
    try:
        hasty_destroy.check("mine", RUNNERS)
    except SlipwayError as error:
        return str(error)
    return ""


def test_destroy_leaves_a_set_its_controller(bin_folder: Path) -> None:
    sets = [{"name": "gpu", "deletionTimestamp": "2027-01-01T00:00:00Z"}, {"name": "cpu"}]
    says(bin_folder, sets)
    assert refusal() == (
        "slipway-runners/gpu: the scale set is being deleted, and waits for the jobs of its runners: run `pulumi destroy "
        "--stack mine --refresh` once kubectl get --namespace slipway-runners autoscalingrunnersets.actions.github.com no "
        "longer has it"
    )
    says(bin_folder, sets, controllers=0)
    assert refusal() == ""


def test_destroy_of_an_earlier_set_with_a_job_is_refused(bin_folder: Path) -> None:
    old: dict[str, Any] = {"name": "gpu", "labels": {"app.kubernetes.io/version": "0.14.2"}}
    new = {**old, "annotations": {"slipway/arc": "0.14"}}
    says(bin_folder, [old], jobs=("gpu",))
    assert refusal() == (
        "slipway-runners/gpu: a job runs, and an earlier release of Slipway made the scale set, which is given up after 5 "
        "minutes: run `slipway up mine` first, then destroy waits for the job"
    )
    for sets, jobs in (([old], ()), ([new], ("gpu",)), ([old], ("cpu",)), ([], ())):
        says(bin_folder, sets, jobs)
        assert refusal() == "", (sets, jobs)


def test_destroy_goes_on_without_an_answer(bin_folder: Path) -> None:
    (bin_folder / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    (bin_folder / "kubectl").chmod(0o755)
    assert refusal() == ""
    for wrong in ({"kubeconfig": "~no-such-user/config"}, {"context": ["a"]}, {"namespace": None}, {"kubeconfig": 7}):
        hasty_destroy.check("mine", {"runners": {"kind": "kubernetes", **wrong}})
    hasty_destroy.check("mine", {"runners": {"kind": "ec2"}})
    hasty_destroy.check("mine", {})
