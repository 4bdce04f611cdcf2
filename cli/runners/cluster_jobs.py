"""What a cluster says of runners and their jobs: ARC's objects, pods and events, read by ``kubectl``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, one_line
from containers.image.gpu import kubectl
from containers.image.gpu.kubectl import Item, Unanswered, UnknownKind, not_ready
from scaler.waiting import RunnerPlace, Surroundings, WaitingJob
from stacks.config.cluster.arc_config import ARC_RUNNERS, ARC_SET_NAME, ARC_SETS
from stacks.config.kubernetes import KubernetesRunnersConfig

_SETS: Final = "ephemeralrunnersets.actions.github.com"
_BOOT: Final = 20 * 60.0
"""Seconds in which a node with GPUs comes up and pulls the runner's image."""
_USUAL: Final = (
    *("ContainerCreating", "PodInitializing", "it is not scheduled yet"),
    *("containers with unready status: [runner]", "Unhealthy: Readiness probe failed"),
)
"""How begins what a pod says that comes up as it should, and a runner's that has no job: its probe fails until then."""


def cluster_jobs(
    stack: str, config: KubernetesRunnersConfig
) -> tuple[list[WaitingJob], list[RunnerPlace], Surroundings]:
    """Return the jobs assigned to ARC without a runner, the runners, and the facts that all share.

    ARC knows a job by name once a runner has it; before, it knows how many there are.

    Raises SlipwayError: the cluster does not answer, or answers with objects of another shape than documented.
    """
    try:
        return _read(config)
    except FileNotFoundError:
        raise SlipwayError(f"stack {stack}: kubectl is not on PATH, which says why jobs wait: install it") from None
    except Unanswered as error:
        raise SlipwayError(f"stack {stack}: the cluster does not answer kubectl: {error}") from None
    except MALFORMED as error:
        raise SlipwayError(f"stack {stack}: {kubectl.of_another_shape(error)}") from None


def _read(config: KubernetesRunnersConfig) -> tuple[list[WaitingJob], list[RunnerPlace], Surroundings]:
    runners = _own(config, ARC_RUNNERS)
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
    replicas = sum(int(each["spec"].get("replicas", 0)) for each in _own(config, _SETS))
    waiting = max(replicas - _idle(config) - sum(place.job is not None for place in places), 0)
    around = Surroundings(config.max_runners, _BOOT, controller=_controller(config))
    return [WaitingJob("", about="GitHub assigned it, and names it once it runs")] * waiting, places, around


def _items(config: KubernetesRunnersConfig, kind: str, namespace: str) -> list[Item]:
    try:
        return kubectl.items(kind, f"--namespace={namespace}", kubeconfig=config.kubeconfig, context=config.context)
    except UnknownKind:
        raise Unanswered(f"it has no {kind}: `slipway up` brings ARC; or is runners.context another?") from None


def _own(config: KubernetesRunnersConfig, kind: str) -> list[Item]:
    """Return ARC's objects of the runners, without those of the stack's other sets."""
    items = _items(config, kind, config.namespace)
    if not config.is_one_of_several:
        return items
    return [item for item in items if item["metadata"].get("labels", {}).get(ARC_SET_NAME) == config.scale_set]


def _idle(config: KubernetesRunnersConfig) -> int:
    """Return how many runners are to wait for jobs now: ``schedule`` changes this in the cluster alone."""
    sets = [each for each in _items(config, ARC_SETS, config.namespace) if _name(each) == config.scale_set]
    return sum(each["spec"].get("minRunners") or 0 for each in sets)


def _name(item: Item) -> str:
    return str(item["metadata"]["name"])


def _events(config: KubernetesRunnersConfig, namespace: str) -> dict[str, list[str]]:
    """Return what warnings, and autoscalers, say of each object of a namespace, the newest first."""
    about: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for event in _items(config, "events", namespace):
        if event.get("type") == "Warning" or event.get("reason") == "NotTriggerScaleUp":
            text = one_line(f"{event.get('reason', '')}: {event.get('message', '')}", kubectl.LONGEST)
            when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
            about[str(event["involvedObject"]["name"])].append((when, text))
    return {name: [text for _, text in sorted(texts, reverse=True)] for name, texts in about.items()}


def _place(
    config: KubernetesRunnersConfig,
    runner: Item,
    pod: Item | None,
    job_pod: Item | None,
    events: Mapping[str, Sequence[str]],
) -> RunnerPlace:
    # ARC's `ready` is the pod's, which has a job.
    runs, job = runner.get("status", {}).get("phase") == "Running", _job(runner)
    passed: dict[str, float | None] = {"requested": _seconds(runner["metadata"]["creationTimestamp"])}
    booted, works = _started(pod), _started(job_pod)
    if booted or runs or job:
        passed["booted"] = booted
    if runs or job:
        passed["registered"] = None
    if job and (works or not config.job_pods):
        passed["started"] = works
    waits = "started" not in passed and (job is not None or not runs)
    return RunnerPlace(_name(runner), passed, _signs(runner, job_pod if job else pod, events) if waits else (), job)


def job_number(runner: Item) -> str:
    """Return GitHub's number of the job that a runner has; empty if it has none."""
    status = runner.get("status", {})
    return str(status.get("jobId") or status.get("jobRequestId") or "")


def _job(runner: Item) -> WaitingJob | None:
    """Return the job that a runner has."""
    status, number = runner.get("status", {}), job_number(runner)
    names = [str(status[key]) for key in ("jobRepositoryName", "jobDisplayName") if status.get(key)]
    return WaitingJob(number, about=" ".join(names)) if number or names else None


def _signs(runner: Item, pod: Item | None, events: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the words of ARC, the pod and events about a runner that does not come up."""
    status, pods = runner.get("status", {}), [pod] if pod else []
    own = one_line(status.get("message") or status.get("reason") or "", kubectl.LONGEST)
    reasons = [own, *map(not_ready, pods)]
    reasons += [line for item in (*pods, runner) for line in events.get(_name(item), ())]
    return tuple(line for line in dict.fromkeys(reasons) if line and not line.startswith(_USUAL))


def _started(pod: Item | None) -> float | None:
    """Return when the first container of a pod started that runs; None if none does."""
    if pod is None:
        return None
    states: list[dict[str, Any]] = [each.get("state", {}) for each in pod["status"].get("containerStatuses", [])]
    times = [state["running"].get("startedAt") for state in states if "running" in state]
    return _seconds(times[0]) if times and times[0] else None


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _controller(config: KubernetesRunnersConfig) -> str:
    """Return why no runner is requested for jobs; empty if controller and listener run, or may not be looked at."""
    space = config.arc_namespace
    try:
        pods = config.of_arc(kubectl.lasting(_items(config, "pods", space)))
    except Unanswered:
        if config.arc.controller is None:
            raise
        return ""
    for pod in pods:
        if reason := not_ready(pod):
            return f"{space}/{_name(pod)} does not run: {reason}"
    if not pods:
        return f"{space} has no pod: kubectl get events --namespace {space}"
    if not any("listener" in _name(pod) for pod in pods):
        return f"{space} has no listener: are runners.github.url and its credentials right?"
    return ""
