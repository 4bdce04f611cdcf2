"""Refuses a ``destroy`` of runners that would delete a scale set's controller too early, or wait for one in vain."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, printable
from containers.image.gpu import kubectl
from containers.image.gpu.kubectl import Item, Unanswered, UnknownKind
from stacks.checks.clusters import ARC_CONTROLLERS, CONTROLLER_GONE, serves
from stacks.config.cluster.arc_config import ARC_SETS
from stacks.config.kubernetes import KubernetesRunnersConfig

_REFUSED: Final = "Error from server"
"""How kubectl begins what a server answers that is there, such as `Error from server (Forbidden)`."""

_OF_ARC: Final = b"apiVersion: actions.github.com/"
"""What the objects of ARC begin with in a release's manifest, whose line breaks are escaped."""
_LONGEST: Final = 16 << 20
"""Bytes of a release that are read; Kubernetes keeps at most 1 MiB of it, compressed."""


def check(stack: str, values: Mapping[str, Any]) -> str:
    """Refuse a scale set if Helm would await it in vain, or would not await its jobs.

    Only a controller of ARC ends a scale set: without one, Helm waits for as long as the set's jobs may take. Helm
    forgets the release of a set during its deletion: its controller would go first. Without ARC's definitions, Helm
    deletes no release that has objects of them (v3.20.2, pkg/action/uninstall.go:233); other releases of the namespace
    go with it.

    ``values`` are the stack's own keys, which may have mistakes: what is wrong can be destroyed. Returns a line for a
    cluster of which nothing is known, else an empty text: Pulumi may know another way to it.

    Raises SlipwayError: one line for each scale set, with what to do.
    """
    runners = values.get("runners")
    if not isinstance(runners, dict) or runners.get("kind") != "kubernetes":
        return ""
    space = str(runners.get("namespace", KubernetesRunnersConfig.model_fields["namespace"].default))
    try:
        lines = _lines(stack, space, runners)
    except FileNotFoundError:
        return "kubectl is not on PATH: whether a controller is there that ends the scale sets is not known"
    except Unanswered as error:
        if str(error).startswith(_REFUSED):
            return printable(f"whether a controller is there that ends the scale sets is not known: {error}")
        return printable(
            f"the cluster does not answer kubectl ({error}): destroy deletes nothing in it; if it is gone for good, "
            f"run `PULUMI_K8S_DELETE_UNREACHABLE=true pulumi refresh --stack {stack}` first, which forgets what was "
            "there"
        )
    except (*MALFORMED, zlib.error) as error:
        return kubectl.of_another_shape(error)
    if lines:
        raise SlipwayError("\n".join(printable(line) for line in lines))
    return ""


def _lines(stack: str, space: str, runners: Mapping[str, Any]) -> list[str]:
    def items(kind: str, *options: str) -> list[Item]:
        where = {key: runners.get(key) for key in ("kubeconfig", "context")}
        return kubectl.items(kind, *(options or [f"--namespace={space}"]), **where)

    try:
        sets = [each["metadata"] for each in items(ARC_SETS)]
    except UnknownKind:
        return _undefined(items, space)
    if lines := _held(items, space, runners, sets):
        return lines
    return [
        f"{space}/{each['name']}: the scale set is being deleted, and waits for the jobs of its runners: run `pulumi "
        f"destroy --stack {stack} --refresh` once kubectl get --namespace {space} {ARC_SETS} no longer has it"
        for each in sets
        if each.get("deletionTimestamp")
    ]


def _undefined(items: Callable[..., list[Item]], space: str) -> list[str]:
    secrets = items("secrets", f"--namespace={space}", "--selector=owner=helm")
    releases = [each for each in secrets if _OF_ARC in _release(each)]
    return [
        f"{space}/{name}: the cluster has no {ARC_SETS} any more, without which Helm does not delete the scale set's "
        f"release: install ARC's definitions again first ({CONTROLLER_GONE})"
        for name in sorted({each["metadata"]["labels"]["name"] for each in releases})
    ]


def _release(secret: Item) -> bytes:
    """Return a release of Helm as JSON: gzip, in base64 below the Secret's own (v3.20.2, storage/driver/util.go:33)."""
    compressed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(compressed, _LONGEST)


def _held(items: Callable[..., list[Item]], space: str, runners: Mapping[str, Any], sets: Sequence[Item]) -> list[str]:
    """Return a line for each set that waits for a controller, if none is there.

    Who destroys need not see the organization's controller.
    """
    arc = runners.get("arc")
    named = arc.get("controller") if isinstance(arc, dict) else None
    own = str(named.get("namespace")) if isinstance(named, dict) else f"{space}-controller"
    held = [each["name"] for each in sets if each.get("finalizers")]
    try:
        if not held or any(serves(each, space) for each in _controllers(items, own)):
            return []
    except Unanswered:
        return []
    return [
        f"{space}/{name}: only ARC's controller ends a scale set, and none runs in {own} that serves {space}, so "
        f"that destroy would wait for nothing: start it again, or release the set by hand ({CONTROLLER_GONE})"
        for name in held
    ]


def _controllers(items: Callable[..., list[Item]], own: str) -> list[Item]:
    """Return the controllers of the cluster; those of a namespace where nobody may list more."""
    selector = f"--selector={ARC_CONTROLLERS}"
    try:
        return items("deployments.apps", "--all-namespaces", selector)
    except Unanswered:
        return items("deployments.apps", f"--namespace={own}", selector)
