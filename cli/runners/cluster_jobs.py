"""What a cluster says of runners and their jobs: ARC's objects, pods and events, read by ``kubectl``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, one_line
from containers.image.gpu import kubectl
from containers.image.gpu.kubectl import Item, Unanswered, not_ready
from scaler.waiting import Place, Surroundings, WaitingJob
from stacks.config.kubernetes import KubernetesRunnersConfig

_GROUP: Final = "actions.github.com"
_BOOT: Final = 20 * 60.0
"""Seconds in which a node with GPUs comes up and pulls the runner's image."""
_USUAL: Final = ("ContainerCreating", "PodInitializing", "it is not scheduled yet")
"""What a pod that comes up as it should says."""


def cluster_jobs(stack: str, config: KubernetesRunnersConfig) -> tuple[list[WaitingJob], list[Place], Surroundings]:
    """Return the jobs that ARC was assigned and that have no runner, the runners, and what all of them share.

    ARC knows a job by name once a runner has it; before, it knows how many there are.

    Raises:
        SlipwayError: the cluster does not answer, or answers with objects of another shape than documented.
    """
    try:
        return _read(config)
    except FileNotFoundError:
        raise SlipwayError(f"stack {stack}: kubectl is not on PATH, which says why jobs wait: install it") from None
    except Unanswered as error:
        raise SlipwayError(f"stack {stack}: the cluster does not answer kubectl: {error}") from None
    except MALFORMED as error:
        raise SlipwayError(
            f"stack {stack}: the cluster answers kubectl with objects of another shape than documented: "
            f"{type(error).__name__}"
        ) from None


def _read(config: KubernetesRunnersConfig) -> tuple[list[WaitingJob], list[Place], Surroundings]:
    runners = _own(config, f"ephemeralrunners.{_GROUP}")
    pods = {_name(pod): pod for pod in _items(config, "pods", config.namespace)}
    events = _events(config, config.namespace)
    job_pods: dict[str, Item] = {}
    if config.job_pods:
        listed = _items(config, "pods", config.jobs_namespace)
        job_pods = {pod["metadata"].get("labels", {}).get("runner-pod", ""): pod for pod in listed}
        events |= _events(config, config.jobs_namespace)
    places = [
        _place(config, runner, pods.get(_name(runner)), job_pods.get(_name(runner)), events)
        for runner in runners
        if runner.get("status", {}).get("phase") != "Succeeded"
    ]
    wanted = sum(int(each["spec"].get("replicas", 0)) for each in _own(config, _SETS))
    waiting = max(wanted - config.min_runners - sum(place.job is not None for place in places), 0)
    around = Surroundings(config.max_runners, _BOOT, controller=_controller(config))
    return [WaitingJob("", about="GitHub assigned it, and names it once it runs")] * waiting, places, around


_SETS: Final = f"ephemeralrunnersets.{_GROUP}"


def _items(config: KubernetesRunnersConfig, kind: str, namespace: str) -> list[Item]:
    try:
        return kubectl.items(kind, f"--namespace={namespace}", kubeconfig=config.kubeconfig, context=config.context)
    except Unanswered as error:
        if "the server doesn't have a resource type" in str(error):
            raise Unanswered(f"it has no {kind}: `slipway up` brings ARC; or is runners.context another?") from None
        raise


def _own(config: KubernetesRunnersConfig, kind: str) -> list[Item]:
    """Return ARC's objects of the runners, without those of the stack's other sets."""
    label = f"{_GROUP}/scale-set-name"
    items = _items(config, kind, config.namespace)
    several = config.is_one_of_several
    return [item for item in items if not several or item["metadata"].get("labels", {}).get(label) == config.scale_set]


def _name(item: Item) -> str:
    return str(item["metadata"]["name"])


def _events(config: KubernetesRunnersConfig, namespace: str) -> dict[str, list[str]]:
    """Return what warnings, and autoscalers, say of each object of a namespace, the newest first."""
    about: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for event in _items(config, "events", namespace):
        if event.get("type") == "Warning" or event.get("reason") == "NotTriggerScaleUp":
            text = one_line(f"{event.get('reason', '')}: {event.get('message', '')}", 400)
            when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
            about[str(event["involvedObject"]["name"])].append((when, text))
    return {name: [text for _, text in sorted(texts, reverse=True)] for name, texts in about.items()}


def _place(
    config: KubernetesRunnersConfig,
    runner: Item,
    pod: Item | None,
    job_pod: Item | None,
    events: Mapping[str, Sequence[str]],
) -> Place:
    status, name = runner.get("status", {}), _name(runner)
    passed: dict[str, float | None] = {"requested": _seconds(runner["metadata"]["creationTimestamp"])}
    job = None
    if status.get("jobRequestId") or status.get("jobId") or status.get("jobDisplayName"):
        names = (status.get("jobRepositoryName"), status.get("jobDisplayName"))
        job = WaitingJob(
            str(status.get("jobId") or status.get("jobRequestId") or ""), about=" ".join(map(str, filter(None, names)))
        )
    booted = _started(pod) if pod else None
    if booted or status.get("ready") or job:
        passed["booted"] = booted
    if status.get("ready") or job:
        passed["registered"] = None
    where = job_pod if config.job_pods else pod
    if job and (not config.job_pods or (where and _started(where))):
        passed["started"] = _started(where) if config.job_pods and where else None
    if "started" in passed or ("registered" in passed and job is None):
        return Place(name, passed, (), job)
    own = [job_pod] if job and job_pod else [pod] if pod and not job else []
    said = [one_line(status.get("message") or status.get("reason") or "", 400), *map(not_ready, own)]
    said += [line for item in (*own, runner) for line in events.get(_name(item), ())]
    return Place(name, passed, tuple(_unusual(said)), job)


def _unusual(said: Iterable[str]) -> Iterable[str]:
    return (line for line in dict.fromkeys(said) if line and not line.startswith(_USUAL))


def _started(pod: Item) -> float | None:
    """Return when the first container of a pod started that runs; None if none does."""
    states: list[dict[str, Any]] = [each.get("state", {}) for each in pod["status"].get("containerStatuses", [])]
    times = [state["running"].get("startedAt") for state in states if "running" in state]
    return _seconds(times[0]) if times and times[0] else None


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _controller(config: KubernetesRunnersConfig) -> str:
    """Return why no runner is requested for jobs; empty if controller and listener run."""
    space = config.controller_namespace
    pods = kubectl.lasting(_items(config, "pods", space))
    for pod in pods:
        if reason := not_ready(pod):
            return f"{space}/{_name(pod)} does not run: {reason}"
    if not pods:
        return f"{space} has no pod: kubectl get events --namespace {space}"
    if not any("listener" in _name(pod) for pod in pods):
        return f"{space} has no listener: are runners.github.url and its credentials right?"
    return ""
