"""What checkov has against the objects of a stack of runners, every exception with its reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_kubernetes_runners import GITHUB, RELEASE, WHOLE, objects, only, plainly
from toolchain import pip
from toolchain.checkout import Checkout

pytestmark = pytest.mark.slow

RUNNER, BUILD, CHECKS = (
    "Pod.slipway-runners.runner",
    "Deployment.slipway-runners.build",
    "Job.slipway-runners.gpu-checks",
)

EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "CKV_K8S_8": ({RUNNER, BUILD}, "a build in progress must not be ended by a probe that it starves"),
    "CKV_K8S_9": ({RUNNER}, "nobody connects to a runner"),
    "CKV_K8S_10": ({RUNNER}, "the limit range gives a container its CPU where it names none"),
    "CKV_K8S_11": ({RUNNER, BUILD, CHECKS}, "a build may have what CPU is idle"),
    "CKV_K8S_12": ({RUNNER}, "the limit range gives a container its memory where it names none"),
    "CKV_K8S_13": ({RUNNER, CHECKS}, "a job has the node's memory to itself; what is Docker's is limited"),
    "CKV_K8S_15": ({RUNNER, BUILD, CHECKS}, "tags are pinned, and a registry that is away must not stop a build"),
    "CKV_K8S_16": ({RUNNER, BUILD}, "a Docker daemon makes namespaces and mounts; rootless is the alternative"),
    "CKV_K8S_20": ({RUNNER, BUILD}, "likewise, and jobs have sudo in GitHub's image"),
    "CKV_K8S_22": ({RUNNER, BUILD, CHECKS}, "jobs, daemons and checks write where they please in their own pod"),
    "CKV_K8S_23": ({BUILD, CHECKS}, "the daemon is root's, and the user of checks is their image's"),
    "CKV_K8S_25": ({RUNNER, CHECKS}, "EFA and InfiniBand pin memory, which IPC_LOCK allows"),
    "CKV_K8S_28": ({RUNNER, BUILD}, "a privileged daemon has every capability"),
    "CKV_K8S_29": ({RUNNER, BUILD, CHECKS}, "it is each container's, and not the pod's"),
    "CKV_K8S_31": ({BUILD}, "a privileged daemon has no seccomp profile"),
    "CKV_K8S_37": ({RUNNER, BUILD, CHECKS}, "what root of an image is used to, but for NET_RAW"),
    "CKV_K8S_40": ({RUNNER, BUILD, CHECKS}, "the users of GitHub's, Docker's and the checked image are their own"),
    "CKV_K8S_43": ({RUNNER, BUILD, CHECKS}, "a digest may be given for each; a default by tag can be mirrored"),
}
"""By check: what it fails for, and why that is meant."""


def checkov() -> Path:
    """Return the folder of checkov and all it needs, installed once into the checkout's cache."""
    checkout = Checkout.here()
    folder = checkout.cache / "cluster" / "checkov"
    if not folder.is_dir():
        unfinished = folder.with_name("checkov.new")
        lock = Path(__file__).with_name("checkov.lock")
        pip.install(Path(sys.executable), lock, checkout.logs / "checkov.log", "--target", unfinished)
        unfinished.rename(folder)
    return folder


def test_checkov_finds_nothing_but_what_is_explained(tmp_path: Path) -> None:
    recorder, _ = only(**WHOLE, github={"url": GITHUB["url"], "token": "t"})
    template = recorder.of_type(RELEASE)["runners-gha-runner-scale-set"]["values"]["template"]
    metadata = {"name": "runner", "namespace": "slipway-runners", **template["metadata"]}
    runner = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    for number, manifest in enumerate([*objects(recorder).values(), runner]):
        (tmp_path / f"{number}.json").write_text(json.dumps(plainly(manifest)))
    words: list[str | Path] = [
        "--directory",
        tmp_path,
        "--framework",
        "kubernetes",
        "--output",
        "json",
        "--skip-download",
        "--quiet",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "checkov.main", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(checkov())},
        cwd=tmp_path,
    )
    results: dict[str, Any] = json.loads(done.stdout)["results"]
    found: dict[str, set[str]] = {}
    for failed in results["failed_checks"]:
        found.setdefault(failed["check_id"], set()).add(failed["resource"])
    assert found == {check: where for check, (where, _) in EXCEPTIONS.items()}
