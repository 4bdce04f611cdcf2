"""What `kubectl` says of a cluster, and removes there: it knows every way to log in to one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from containers.child_environment import child_environment
from containers.errors import SlipwayError, engine_advice, one_line

SECONDS: Final = 20
"""Seconds for one answer."""

DELETION_SECONDS: Final = 300
"""Seconds for a deletion: pods end first."""

LONGEST: Final = 400
"""Most characters of a reason. The scheduler gives one for each kind of node."""

_SUFFIXES: Final[Mapping[str, Decimal]] = {
    **{
        suffix: Decimal(1000) ** power
        for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY: Final = re.compile(
    rf"([+-]?(?:[0-9]{{1,20}}\.?[0-9]{{0,20}}|\.[0-9]{{1,20}}))(?:({'|'.join(_SUFFIXES)})|[eE]([+-]?[0-9]{{1,2}}))",
    re.ASCII,
)

Item = dict[str, Any]


class Unanswered(SlipwayError):
    """``kubectl`` got no answer; ``str()`` is the reason."""


class UnknownKind(Unanswered):
    """The cluster has no such kind of object."""


def items(*words: str, kubeconfig: str | None = None, context: str | None = None) -> list[Item]:
    """Return the objects that ``kubectl get`` lists.

    Args:
        words: the kind, and options.
        kubeconfig: the path of one; by default ``kubectl``'s own.
        context: of the kubeconfig; by default its current one.

    Raises:
        FileNotFoundError: there is no ``kubectl`` on PATH.
        UnknownKind: the cluster has no definition of the kind.
        Unanswered: the cluster does not answer, refuses, or does not list objects.
    """
    try:
        listed: list[Item] = [
            *json.loads(_printed(kubeconfig, context, SECONDS, "get", *words, "--output=json"))["items"]
        ]
    except (KeyError, TypeError, RecursionError):
        raise Unanswered("what it printed is no list of objects") from None
    except ValueError as error:
        raise Unanswered(_reason(error)) from None
    return listed


def kinds(*, kubeconfig: str | None = None, context: str | None = None) -> list[str]:
    """Return all kinds of objects that namespaces have, as :func:`items` takes them.

    Raises: as :func:`items`.
    """
    words = ("api-resources", "--namespaced", "--verbs=list", "--output=name")
    return _printed(kubeconfig, context, SECONDS, *words).split()


def delete(*words: str, kubeconfig: str | None = None, context: str | None = None) -> None:
    """Delete objects, and wait until they are gone, five minutes at most; what is gone already is no error.

    Args: as of :func:`items`.

    Raises: as :func:`items`.
    """
    options = ("--ignore-not-found", "--cascade=foreground", f"--timeout={DELETION_SECONDS}s")
    _printed(kubeconfig, context, DELETION_SECONDS, "delete", *words, *options)


def _printed(kubeconfig: str | None, context: str | None, seconds: int, *words: str) -> str:
    """Return what ``kubectl`` prints. Raises as :func:`items`."""
    try:
        flags = [("--kubeconfig", kubeconfig and str(Path(kubeconfig).expanduser())), ("--context", context)]
        options = [word for name, value in flags if value for word in (name, value)]
        command = ["kubectl", *options, *words, f"--request-timeout={seconds}s"]
        process = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=seconds * 2, env=child_environment("kubectl")
        )
    except FileNotFoundError:
        raise
    except (OSError, subprocess.SubprocessError, ValueError, RuntimeError) as error:  # the last: ~ of an unknown user
        reason = _reason(error)
        raise (UnknownKind if "the server doesn't have a resource type" in reason else Unanswered)(reason) from None
    return process.stdout


def of_another_shape(error: Exception) -> str:
    """Return the line of an error that objects raised which are not as Kubernetes documents them."""
    return f"the cluster answers kubectl with objects of another shape than documented: {type(error).__name__}"


def age(item: Item) -> timedelta:
    """Return how long ago an object was made."""
    return datetime.now(UTC) - datetime.fromisoformat(item["metadata"]["creationTimestamp"])


def offered(node: Item, resource: str) -> int:
    """Return how many whole ones of a resource a node offers to pods.

    The API server writes a quantity in its shortest form, so that 8000 is ``8k`` (kubernetes/apimachinery,
    pkg/api/resource/quantity.go, `CanonicalizeBytes`; the suffixes are those of suffix.go, `newSuffixer`).

    Raises:
        Unanswered: what the node says is no quantity.
    """
    text = str(node.get("status", {}).get("allocatable", {}).get(resource, "0"))
    match = _QUANTITY.fullmatch(text)
    if not match:
        name = one_line(node["metadata"].get("name", ""))
        raise Unanswered(f"node {name}: {resource}: '{one_line(text)}' is no quantity, such as 8 or 8k")
    number, suffix, exponent = match.groups()
    return int(Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix]))


def lasting(pods: list[Item]) -> list[Item]:
    """Return the pods that no Job made: a Job's pods end."""
    return [pod for pod in pods if "batch.kubernetes.io/job-name" not in pod["metadata"].get("labels", {})]


def not_ready(pod: Item) -> str:
    """Return why a pod does not run; empty if it runs or has succeeded.

    Containers that start first come first, because the others only wait for them.
    """
    status = pod["status"]
    if status.get("phase") == "Succeeded":
        return ""
    if status.get("phase") == "Failed" and status.get("message"):
        return one_line(f"{status.get('reason', '')}: {status['message']}".lstrip(": "), LONGEST)
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        state = container.get("state", {})
        ended = state.get("terminated")
        if why := state.get("waiting") or (ended if ended and ended.get("exitCode") else None):
            text = f"{why.get('reason', '')}: {why.get('message', '')}".rstrip(": ")
            return one_line(text, LONGEST) + engine_advice(text)
    for condition in status.get("conditions", []):
        if condition["status"] == "False" and condition.get("message"):
            return one_line(condition["message"], LONGEST)
    return {"Running": "", "Failed": "it has failed"}.get(status.get("phase", ""), "it is not scheduled yet")


def _reason(error: Exception) -> str:
    message = getattr(error, "stderr", None) or str(error)
    # After a timeout it is bytes (Python's documentation of TimeoutExpired).
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    # The last line is the reason: those before it are of each attempt.
    return one_line((text.strip().splitlines() or ["no reason is given"])[-1], 300)
