"""Declares Kubernetes objects, given as manifests, as typed Pulumi resources, and mends what a cut-off update lost."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pydantic.alias_generators import to_snake

from components.runners.kubernetes.isolation import Manifest
from containers.image.gpu import kubectl
from stacks.config.kubernetes import KubernetesRunnersConfig

FINAL: Mapping[str, tuple[str, ...]] = {
    "PriorityClass": ("value", "preemptionPolicy"),
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec",),
}
"""Fields by kind that are immutable for the API server but not for Pulumi's provider: a change replaces the object."""


MARK = "slipway/made-by"
"""The annotation of an object: its resource, after the id of its stack's provider, which only the state has."""

_TAKEN = ("already exists", "cannot re-use a name that is still in use")
"""Errors for an object, and for a chart, that is there (k8s.io/apimachinery v0.35.4, pkg/api/errors/errors.go,
NewAlreadyExists; helm v3.20.2, pkg/action/install.go, availableName)."""

_BUSY = "another operation (install/upgrade/rollback) is in progress"
"""Helm's error for a chart of which a revision is pending (helm v3.20.2, pkg/action/action.go, errPending)."""

_PENDING = "status in (pending-install,pending-upgrade,pending-rollback)"

_CLUSTERS = "ConfigMap kube-root-ca.crt"
"""What the cluster makes in each namespace."""

_CUT_OFF = "an update was cut off in the middle of this, and so it is made again"
_UPSERT = "kubernetes:upsertExistingObjects"

_PATIENCE = 600
"""Seconds that Pulumi's provider waits for an object, where nothing else is said."""


def _patient(manifest: Manifest) -> pulumi.ResourceOptions | None:
    """Return how long a workload's old pods are awaited beyond that: they may take their grace to end.

    A deletion is awaited with its pods, and so is a new pod where the old one has to end first (pulumi-kubernetes
    9497796, provider/pkg/await/await.go:498 and :977).
    """
    grace = manifest.get("spec", {}).get("template", {}).get("spec", {}).get("terminationGracePeriodSeconds")
    if not grace:
        return None
    seconds = f"{grace + _PATIENCE}s"
    return pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(update=seconds, delete=seconds))


def mending(config: KubernetesRunnersConfig, provider: k8s.Provider) -> pulumi.ResourceOptions:
    """Return the option by which an update goes on with what a former one made and could not note.

    Pulumi's plugin creates no object that is there (pulumi-kubernetes v4.32.0, provider/pkg/await/await.go:252). If it
    dies when the API server has the object, the engine notes nothing, and each later update would fail.
    """

    async def mend(args: pulumi.ErrorHookArgs) -> bool:
        owner = await provider.id.future()
        return await asyncio.to_thread(mended, config, f"{owner}/", args)

    hook = pulumi.ErrorHook(f"{config.namespace}-mend", mend)
    return pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(on_error=[hook]))


def mended(config: KubernetesRunnersConfig, owner: str, args: pulumi.ErrorHookArgs) -> bool:
    """Remove what this stack made and does not know, and tell whether the operation is to be repeated, once."""
    inputs = dict(args.new_inputs or {})
    wanted = (_BUSY,) if args.failed_operation == "update" else _TAKEN
    if len(args.errors) > 1 or not any(text in args.errors[0] for text in wanted):
        return False
    is_chart = "chart" in inputs
    metadata = inputs if is_chart else inputs["metadata"]
    name, space = metadata["name"], metadata.get("namespace", "")
    try:
        if is_chart:
            reason = _forget(config, owner, name, space, args.failed_operation)
        else:
            reason = _remove(config, f"{owner}{args.name}", inputs, name, space)
    except (FileNotFoundError, kubectl.Unanswered) as error:
        reason = f"what is there is not known: {error}"
    tell = pulumi.log.error if reason else pulumi.log.warn
    tell(f"{inputs.get('kind', 'chart')} {name}: {reason or _CUT_OFF}")
    return not reason


def _forget(config: KubernetesRunnersConfig, owner: str, name: str, space: str, operation: str) -> str:
    """Have Helm forget a chart, or the revisions of it that are pending; return why not.

    When it installs the chart again it takes over the objects that have its annotations (helm v3.20.2,
    pkg/action/validate.go, existingResourceConflict).
    """
    if not any(made_by.startswith(owner) for made_by in _makers(config, "Namespace.v1.", space)):
        return f"Helm has this chart, and not from this stack: run `helm uninstall {name} --namespace {space}`"
    which = f"owner=helm,name={name}{f',{_PENDING}' if operation == 'update' else ''}"
    _delete(config, "secrets", f"--namespace={space}", f"--selector={which}")
    return ""


def _remove(config: KubernetesRunnersConfig, mark: str, manifest: Manifest, name: str, space: str) -> str:
    """Delete an object with a mark; return why not. A namespace in which somebody has made something stays."""
    group, version = posixpath.split(manifest["apiVersion"])
    kind = f"{manifest['kind']}.{version}.{group}"
    within = [f"--namespace={space}"] if space else []
    if [mark] != (_makers(config, kind, name, *within) or [mark]):
        return "one of this name is there, and not from this stack: remove it, or give another name"
    if manifest["kind"] == "Namespace" and (others := _others(config, name)):
        return (
            f"it is not in the stack's state, and holds {others}: run `pulumi config set {_UPSERT} true`, "
            f"`pulumi up`, then `pulumi config rm {_UPSERT}`"
        )
    _delete(config, kind, name, *within)
    return ""


def _makers(config: KubernetesRunnersConfig, kind: str, name: str, *within: str) -> list[str]:
    """Return the mark of an object; none if it is gone."""
    found = kubectl.items(
        kind, f"--field-selector=metadata.name={name}", *within, kubeconfig=config.kubeconfig, context=config.context
    )
    return [each["metadata"].get("annotations", {}).get(MARK, "") for each in found]


def _others(config: KubernetesRunnersConfig, space: str) -> str:
    """Return what is in a namespace in which the stack has made nothing yet."""
    kinds = "all,secrets,configmaps,persistentvolumeclaims"
    found = kubectl.items(kinds, f"--namespace={space}", kubeconfig=config.kubeconfig, context=config.context)
    names = (f"{each['kind']} {each['metadata']['name']}" for each in found)
    return ", ".join(name for name in names if name != _CLUSTERS)


def _delete(config: KubernetesRunnersConfig, *words: str) -> None:
    kubectl.delete(*words, kubeconfig=config.kubeconfig, context=config.context)


def declare(prefix: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Declare one object. Its resource name is the prefix, its kind and its name."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind in FINAL:
        replacement = pulumi.ResourceOptions(replace_on_changes=list(FINAL[kind]), delete_before_replace=True)
        opts = pulumi.ResourceOptions.merge(opts, replacement)
    opts = pulumi.ResourceOptions.merge(opts, _patient(manifest))
    resource = f"{prefix}-{kind}-{name}".lower()
    metadata = manifest["metadata"]
    if opts.provider:
        made_by = {MARK: pulumi.Output.concat(opts.provider.id, "/", resource)}
        metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **made_by}}
    body = {to_snake(key): value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
    group, version = posixpath.split(manifest["apiVersion"])  # as networking.k8s.io/v1; the core group has no name
    kinds: Any = getattr(getattr(k8s, group.partition(".")[0] or "core"), version)
    declared: pulumi.CustomResource = getattr(kinds, kind)(resource, **{**body, "metadata": metadata}, opts=opts)
    return declared
