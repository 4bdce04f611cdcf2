"""What checkov has against the objects of a stack of runners, every exception with its reason.

kube-linter cannot be installed from the Go module proxy. Built from its source (stackrox/kube-linter v0.7.21) and run
with all its 56 checks on these objects, it finds what checkov finds: no-liveness-probe (CKV_K8S_8), no-readiness-probe
(9), unset-cpu-requirements (10, 11), unset-memory-requirements (12, 13), privileged-container (16),
privilege-escalation-container (20), no-read-only-root-fs (22), run-as-non-root (23). And these, which are meant:

- dangling-networkpolicy: the pods of the controller's namespace are those of GitHub's chart.
- exposed-services: ``build.service: LoadBalancer`` asks for it.
- minimum-three-replicas, no-rolling-update-strategy, pdb-min-available: the build service has one volume, which one
  daemon may have. Its node is drained only once its builds have ended.
- no-node-affinity: a profile's nodes are selected by ``nodeSelector``.
- dnsconfig-options, required-annotation-email, required-label-owner: customs of others.

``tests/unit/runners/test_object_references.py`` has those of its checks that checkov lacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runners.test_kubernetes_runners import GITHUB, RELEASE, WHOLE, made_by_hook, objects, only, plainly
from toolchain.checkout import Checkout
from toolchain.machine import pip

pytestmark = pytest.mark.slow

RUNNER, BUILD, CHECKS = (
    "Pod.slipway-runners.runner",
    "Deployment.slipway-runners-build.build",
    "Job.slipway-runners.gpu-checks",
)
LONE, ROOTLESS = "Pod.rootless.runner", "Deployment.rootless-build.build"
"""A runner without a daemon, and BuildKit's rootless service."""

OTHER: dict[str, Any] = {
    "namespace": "rootless",
    "daemon": False,
    "build": {"rootless": True, "jobs": True, "service": "LoadBalancer"},
}
"""The stack with these, beside ``WHOLE``."""

RUNNERS, BUILDS = {RUNNER, LONE}, {BUILD, ROOTLESS}
TRIALS = {"Job.slipway-runners-build.build-image", "Job.rootless-build.build-image"}
ALL = RUNNERS | BUILDS | {CHECKS}

EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "CKV_K8S_8": (RUNNERS | BUILDS, "a build in progress must not be ended by a probe that it starves"),
    "CKV_K8S_9": (
        {BUILD},
        "nobody connects to what makes room beside the daemon; a runner is ready while it has a job",
    ),
    "CKV_K8S_10": ({RUNNER}, "the limit range gives a container its CPU where it names none"),
    "CKV_K8S_11": (ALL | TRIALS, "a build may have what CPU is idle"),
    "CKV_K8S_12": ({RUNNER}, "the limit range gives a container its memory where it names none"),
    "CKV_K8S_13": (RUNNERS | {CHECKS}, "a job has the node's memory to itself; what is Docker's is limited"),
    "CKV_K8S_15": (ALL | TRIALS, "tags are pinned, and a registry that is away must not stop a build"),
    "CKV_K8S_16": ({RUNNER, BUILD}, "a Docker daemon makes namespaces and mounts; rootless is the alternative"),
    "CKV_K8S_20": (RUNNERS | BUILDS, "likewise; jobs have sudo in GitHub's image, and RootlessKit its newuidmap"),
    "CKV_K8S_22": (ALL, "jobs, daemons and checks write where they please in their own pod"),
    "CKV_K8S_23": ({BUILD, CHECKS}, "the daemon is root's, and the user of checks is their image's"),
    "CKV_K8S_25": (RUNNERS | {CHECKS}, "EFA and InfiniBand pin memory, which IPC_LOCK allows"),
    "CKV_K8S_28": ({RUNNER, *BUILDS}, "a privileged daemon has every capability; root of a rootless build has NET_RAW"),
    "CKV_K8S_29": ({*RUNNERS, BUILD, CHECKS}, "it is each container's, and not the pod's"),
    "CKV_K8S_31": (BUILDS, "a privileged daemon has no seccomp profile, and RootlessKit's namespaces take none"),
    "CKV_K8S_37": (ALL, "what root of an image is used to, but for NET_RAW"),
    "CKV_K8S_40": (ALL, "the users of GitHub's, Docker's, BuildKit's and the checked image are their own"),
    "CKV_K8S_43": (ALL | TRIALS, "a digest may be given for each; a default by tag can be mirrored"),
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


def written(**values: Any) -> list[dict[str, Any]]:
    """Return what a cluster is asked for, a runner's pod, and those that its hook makes."""
    recorder, _ = only(**values, github={"url": GITHUB["url"], "token": "t"})
    chart = recorder.of_type(RELEASE)["runners-gha-runner-scale-set"]
    template = chart["values"]["template"]
    metadata = {"name": "runner", "namespace": chart["namespace"], **template["metadata"]}
    runner = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return [plainly(manifest) for manifest in (*objects(recorder).values(), runner, *made_by_hook(recorder))]


def test_checkov_reports_only_explained_exceptions(tmp_path: Path) -> None:
    for number, manifest in enumerate([*written(**WHOLE), *written(**OTHER)]):
        (tmp_path / f"{number}.json").write_text(json.dumps(manifest))
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
    failures: dict[str, set[str]] = {}
    for failed in results["failed_checks"]:
        failures.setdefault(failed["check_id"], set()).add(failed["resource"])
    assert failures == {check: where for check, (where, _) in EXCEPTIONS.items()}
