"""What an update does with an object that the cluster has and the state lacks; a script is in `kubectl`'s place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.runners.kubernetes import objects
from components.runners.kubernetes.objects import MARK
from stacks.config.kubernetes import KubernetesRunnersConfig

CONFIG = KubernetesRunnersConfig.model_validate(
    {"kind": "kubernetes", "context": "mine", "github": {"url": "https://github.com/acme", "secret": "s"}}
)
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "runners", "namespace": "a"}}
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
POLICY = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "a"}}
CHART = {"chart": "c", "name": "set", "namespace": "a"}
THERE = '... "runners" already exists\n\nThe resource already exists in the cluster. ...'
IN_USE = "failed to create: cannot re-use a name that is still in use"
BUSY = "another operation (install/upgrade/rollback) is in progress"
PENDING = "status in (pending-install,pending-upgrade,pending-rollback)"
DELETE = "--context mine delete {} --ignore-not-found --cascade=foreground --request-timeout=300s"


def mended(folder: Path, inputs: Any, error: str, made_by: str | None, operation: str = "create") -> tuple[bool, str]:
    """Have an object with a mark in the cluster, or none; return whether the operation is repeated, and what was removed."""
    found = [] if made_by is None else [{"kind": "x", "metadata": {"name": "x", "annotations": {MARK: made_by}}}]
    (folder / "found.json").write_text(json.dumps({"items": found}))
    (folder / "others.json").write_text(
        json.dumps({"items": [{"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}]})
    )
    program = folder / "kubectl"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/calls\n'
        f'case "$*" in *get\\ all,*) cat {folder}/others.json;; *\\ get\\ *) cat {folder}/found.json;; esac\n'
    )
    program.chmod(0o755)
    args = pulumi.ErrorHookArgs(
        urn="u", id="", name="r", type="t", new_inputs=inputs, failed_operation=operation, errors=[error]
    )
    repeated = objects.mended(CONFIG, "own/", args)
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return repeated, "".join(each for each in calls if " get " not in each)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, but for what a shell script needs."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("inputs", "error", "made_by", "operation", "removed"),
    [
        (QUOTA, THERE, "own/r", "create", "ResourceQuota.v1. runners --namespace=a"),
        (POLICY, THERE, "own/r", "create", "NetworkPolicy.v1.networking.k8s.io p --namespace=a"),
        (SPACE, THERE, "own/r", "create", "Namespace.v1. a"),
        (CHART, IN_USE, "own/space", "create", "secrets --namespace=a --selector=owner=helm,name=set"),
        (CHART, BUSY, "own/space", "update", f"secrets --namespace=a --selector=owner=helm,name=set,{PENDING}"),
    ],
)
def test_what_a_cut_off_update_made_is_made_again(
    folder: Path, inputs: Any, error: str, made_by: str, operation: str, removed: str
) -> None:
    assert mended(folder, inputs, error, made_by, operation) == (True, DELETE.format(removed))


@pytest.mark.parametrize(
    ("inputs", "error", "made_by", "operation", "line"),
    [
        (
            QUOTA,
            THERE,
            "other/r",
            "create",
            "ResourceQuota runners: one of this name is there, and not from this stack",
        ),
        (QUOTA, THERE, "", "create", "ResourceQuota runners: one of this name is there, and not from this stack"),
        (QUOTA, THERE, "own/renamed", "create", "ResourceQuota runners: one of this name is there"),
        (
            CHART,
            IN_USE,
            "other/r",
            "create",
            "chart set: Helm has this chart, and not from this stack: run `helm uninstall",
        ),
        (QUOTA, "forbidden", "own/r", "create", ""),
        (QUOTA, THERE, "own/r", "update", ""),
        (CHART, BUSY, "own/r", "create", ""),
    ],
)
def test_what_others_made_stays(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    inputs: Any,
    error: str,
    made_by: str,
    operation: str,
    line: str,
) -> None:
    assert mended(folder, inputs, error, made_by, operation) == (False, "")
    told = capsys.readouterr().err
    assert line in told if line else not told


def test_object_that_is_gone_by_now_is_made(folder: Path) -> None:
    assert mended(folder, QUOTA, THERE, None) == (True, DELETE.format("ResourceQuota.v1. runners --namespace=a"))


def test_operation_is_repeated_once(folder: Path) -> None:
    assert mended(folder, QUOTA, THERE, "own/r")[0]
    args = pulumi.ErrorHookArgs(
        urn="u", id="", name="r", type="t", new_inputs=QUOTA, failed_operation="create", errors=[THERE, THERE]
    )
    assert not objects.mended(CONFIG, "own/", args)


def test_cluster_that_kubectl_does_not_reach_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kubectl").write_text("#!/bin/sh\necho 'You must be logged in to the server' >&2; exit 1\n")
    (folder / "kubectl").chmod(0o755)
    args = pulumi.ErrorHookArgs(
        urn="u", id="", name="r", type="t", new_inputs=QUOTA, failed_operation="create", errors=[THERE]
    )
    assert not objects.mended(CONFIG, "own/", args)
    assert "ResourceQuota runners: what is there is not known: You must be logged in" in capsys.readouterr().err
