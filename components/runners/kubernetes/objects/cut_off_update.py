"""Mends what an update lost that was cut off: objects that are in the cluster, and not in the state."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from datetime import timedelta

import pulumi
import pulumi_kubernetes as k8s

from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.objects.declaration import MARK
from containers.image.gpu import kubectl
from stacks.config.kubernetes import KubernetesRunnersConfig

_WORDS: Mapping[tuple[bool, str], str] = {
    (False, "create"): "already exists",
    (True, "create"): "cannot re-use a name that is still in use",
    (True, "update"): "another operation (install/upgrade/rollback) is in progress",
}
"""Words of the error, by whether it is a chart's, and the operation, where something is there or a revision is pending.

Sources: k8s.io/apimachinery v0.35.4, pkg/api/errors/errors.go, NewAlreadyExists; helm v3.20.2, pkg/action/install.go,
availableName, and pkg/action/action.go, errPending.
"""

_CUT_OFF_SINCE = timedelta(days=1)
"""How long ago an update was cut off at most, if the next one is to remove what it made."""

_PENDING = "status in (pending-install,pending-upgrade,pending-rollback)"

_CLUSTERS = frozenset({"ConfigMap kube-root-ca.crt", "ServiceAccount default"})
"""What the cluster makes in each namespace."""

_CUT_OFF = "an update was cut off in the middle of this, and so it is made again"
_UPSERT = "kubernetes:upsertExistingObjects"


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
    is_chart = "chart" in inputs
    if len(args.errors) > 1 or _WORDS.get((is_chart, args.failed_operation), "\0") not in args.errors[0]:
        return False
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
    if not any(_maker(each).startswith(owner) for each in _found(config, "Namespace.v1.", space)):
        return f"Helm has this chart, and not from this stack: run `helm uninstall {name} --namespace {space}`"
    which = f"owner=helm,name={name}{f',{_PENDING}' if operation == 'update' else ''}"
    _delete(config, "secrets", f"--namespace={space}", f"--selector={which}")
    return ""


def _remove(config: KubernetesRunnersConfig, mark: str, manifest: Manifest, name: str, space: str) -> str:
    """Delete an object with a mark; return why not.

    A namespace in which somebody has made something stays. So does what is older than a day: a state that was restored
    from a copy lacks it, and it may be in use.
    """
    group, version = posixpath.split(manifest["apiVersion"])
    kind = f"{manifest['kind']}.{version}.{group}"
    within = [f"--namespace={space}"] if space else []
    for each in _found(config, kind, name, *within):
        if _maker(each) != mark:
            return "one of this name is there, and not from this stack: remove it, or give another name"
        if "deletionTimestamp" in each["metadata"]:
            return "it is being deleted: run this again once it is gone"
        is_old = kubectl.age(each) > _CUT_OFF_SINCE
        why = f"is from {each['metadata']['creationTimestamp']}" if is_old else ""
        if not why and manifest["kind"] == "Namespace" and (others := _others(config, name)):
            why = f"holds {others}"
        if why:
            return (
                f"it is not in the stack's state, and {why}: run `pulumi config set {_UPSERT} true`, "
                f"`pulumi up`, then `pulumi config rm {_UPSERT}`"
            )
        _delete(config, kind, name, *within)
    return ""


def _found(config: KubernetesRunnersConfig, kind: str, name: str, *within: str) -> list[kubectl.Item]:
    """Return the object of a name; none if it is gone."""
    where = f"--field-selector=metadata.name={name}"
    return kubectl.items(kind, where, *within, kubeconfig=config.kubeconfig, context=config.context)


def _maker(item: kubectl.Item) -> str:
    return str(item["metadata"].get("annotations", {}).get(MARK, ""))


def _others(config: KubernetesRunnersConfig, space: str) -> str:
    """Return what is in a namespace in which the stack has made nothing yet, of all kinds."""
    cluster = {"kubeconfig": config.kubeconfig, "context": config.context}
    kinds = [kind for kind in kubectl.kinds(**cluster) if kind.partition(".")[0] != "events"]
    items = kubectl.items(",".join(kinds), f"--namespace={space}", **cluster)
    names = {f"{each['kind']} {each['metadata']['name']}" for each in items}
    return ", ".join(sorted(names - _CLUSTERS))


def _delete(config: KubernetesRunnersConfig, *words: str) -> None:
    kubectl.delete(*words, kubeconfig=config.kubeconfig, context=config.context)
