"""Refuses a ``destroy`` of runners that would delete a scale set's controller too early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cli.runners.cluster_jobs import job_number
from containers.errors import MALFORMED, SlipwayError, printable
from containers.image.gpu import kubectl
from containers.image.gpu.kubectl import Item, Unanswered
from stacks.config.kubernetes import (
    ARC_LABEL,
    ARC_PREPARED,
    ARC_RUNNERS,
    ARC_SET_NAME,
    ARC_SETS,
    KubernetesRunnersConfig,
)

_CONTROLLER: Final = "app.kubernetes.io/part-of=gha-rs-controller"
"""ARC's own label (charts/gha-runner-scale-set-controller/templates/_helpers.tpl:59)."""


def check(stack: str, values: Mapping[str, Any]) -> None:
    """Refuse while a scale set of the stack is being deleted, or if its jobs would not be awaited.

    A deleted set waits for its jobs and needs the controller. Helm has forgotten the set's release, so the controller
    would go first. Where the controller is gone already, nothing is left to lose. And Helm's releases of before
    :data:`ARC_PREPARED` give up after 300 s (pulumi-kubernetes v4.34.2, helm_release.go), with the
    same result. A cluster that does not answer refuses nothing here.

    Args:
        stack: its name.
        values: the stack's own keys. They may have mistakes: what is wrong can be destroyed.

    Raises:
        SlipwayError: one line for each scale set, with what to do.
    """
    runners = values.get("runners")
    if not isinstance(runners, dict) or runners.get("kind") != "kubernetes":
        return
    space = str(runners.get("namespace", KubernetesRunnersConfig.model_fields["namespace"].default))
    try:
        lines = _lines(stack, space, runners)
    except (FileNotFoundError, Unanswered, *MALFORMED):
        return
    if lines:
        raise SlipwayError("\n".join(printable(line) for line in lines))


def _lines(stack: str, space: str, runners: Mapping[str, Any]) -> list[str]:
    def items(kind: str, *options: str) -> list[Item]:
        where = {key: runners.get(key) for key in ("kubeconfig", "context")}
        return kubectl.items(kind, *(options or [f"--namespace={space}"]), **where)

    sets = [each["metadata"] for each in items(ARC_SETS)]
    ending = [each["name"] for each in sets if each.get("deletionTimestamp")]
    if ending and items("deployments.apps", "--all-namespaces", f"--selector={_CONTROLLER}"):
        return [
            f"{space}/{name}: the scale set is being deleted, and waits for the jobs of its runners: run `pulumi "
            f"destroy --stack {stack} --refresh` once kubectl get --namespace {space} {ARC_SETS} no longer has it"
            for name in ending
        ]
    busy = {each["metadata"].get("labels", {}).get(ARC_SET_NAME) for each in items(ARC_RUNNERS) if job_number(each)}
    return [
        f"{space}/{each['name']}: a job runs, and an earlier release of Slipway made the scale set, which is given up "
        f"after 5 minutes: run `slipway up {stack}` first, then destroy waits for the job"
        for each in sets
        if each["name"] in busy
        and ARC_LABEL in each.get("labels", {})
        and ARC_PREPARED not in each.get("annotations", {})
    ]
