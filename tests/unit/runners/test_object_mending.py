"""What an update does with an object that the cluster has and the state lacks; a script is in `kubectl`'s place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.runners.kubernetes.objects import cut_off_update
from components.runners.kubernetes.objects.declaration import MARK
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
DELETE = "--context mine delete {} --ignore-not-found --cascade=foreground --timeout=300s --request-timeout=300s"


def mended(
    folder: Path,
    inputs: Any,
    error: str,
    made_by: str | None,
    operation: str = "create",
    *,
    others: str = "",
    **found: str,
) -> tuple[bool, str]:
    """Have an object with a mark in the cluster, or none; return whether the operation is repeated, and what was removed.

    ``others`` is the name of a RoleBinding in its namespace, and ``found`` are further data of the object.
    """
    metadata = {"annotations": {MARK: made_by}, "creationTimestamp": datetime.now(UTC).isoformat(), **found}
    (folder / "found.json").write_text(json.dumps({"items": [] if made_by is None else [{"metadata": metadata}]}))
    names = [
        ("ConfigMap", "kube-root-ca.crt"),
        ("ServiceAccount", "default"),
        *([("RoleBinding", others)] if others else []),
    ]
    items = [{"kind": kind, "metadata": {"name": name}} for kind, name in names]
    (folder / "others.json").write_text(json.dumps({"items": items}))
    program = folder / "kubectl"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/calls\n'
        f'case "$*" in *\\ api-resources\\ *) echo configmaps events.events.k8s.io rolebindings.rbac.authorization.k8s.io;;\n'
        f"*get\\ configmaps,rolebindings.*) cat {folder}/others.json;; *\\ get\\ *) cat {folder}/found.json;; esac\n"
    )
    program.chmod(0o755)
    args = pulumi.ErrorHookArgs(
        urn="u", id="", name="r", type="t", new_inputs=inputs, failed_operation=operation, errors=[error]
    )
    repeated = cut_off_update.mended(CONFIG, "own/", args)
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return repeated, "".join(each for each in calls if " delete " in each)


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
    assert mended(folder, QUOTA, THERE, None) == (True, "")


@pytest.mark.parametrize(
    ("inputs", "found", "line"),
    [
        (
            SPACE,
            {"others": "admins"},
            "it is not in the stack's state, and holds RoleBinding admins: run `pulumi config",
        ),
        (QUOTA, {"creationTimestamp": "2026-01-01T00:00:00Z"}, "and is from 2026-01-01T00:00:00Z: run `pulumi config"),
        (SPACE, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "it is being deleted: run this again once it is gone"),
    ],
)
def test_what_may_be_in_use_stays(
    folder: Path, capsys: pytest.CaptureFixture[str], inputs: Any, found: dict[str, str], line: str
) -> None:
    """A state that was restored from a copy may lack what runs jobs now."""
    assert mended(folder, inputs, THERE, "own/r", **found) == (False, "")
    assert line in capsys.readouterr().err


def test_operation_is_repeated_once(folder: Path) -> None:
    assert mended(folder, QUOTA, THERE, "own/r")[0]
    args = pulumi.ErrorHookArgs(
        urn="u", id="", name="r", type="t", new_inputs=QUOTA, failed_operation="create", errors=[THERE, THERE]
    )
    assert not cut_off_update.mended(CONFIG, "own/", args)


def test_cluster_that_kubectl_does_not_reach_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kubectl").write_text("#!/bin/sh\necho 'You must be logged in to the server' >&2; exit 1\n")
    (folder / "kubectl").chmod(0o755)
    args = pulumi.ErrorHookArgs(
        urn="u", id="", name="r", type="t", new_inputs=QUOTA, failed_operation="create", errors=[THERE]
    )
    assert not cut_off_update.mended(CONFIG, "own/", args)
    assert "ResourceQuota runners: what is there is not known: You must be logged in" in capsys.readouterr().err
