"""Detects cluster problems that go unreported: devices that no node offers, jobs without a runner.

An update asks ``kubectl`` before it starts, which knows every way to log in to a cluster. A preview does not ask.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta

from components.runners.kubernetes import arc
from components.runners.kubernetes.build_daemon import NAME
from components.runners.kubernetes.isolation import LABELS
from containers.errors import MALFORMED, one_line, printable
from containers.image.gpu import kubectl, node_drivers
from containers.image.gpu.kubectl import Item, Unanswered, UnknownKind, age, not_ready
from containers.image.gpu.node_labels import GPU
from stacks.checks import drivers
from stacks.checks.clusters import ARC_CONTROLLERS, ARC_WATCHED, CONTROLLER_GONE, serves
from stacks.config.cluster.arc_config import ARC_CONTROLLER, ARC_LABEL, ARC_PREPARED, ARC_RUNNERS, ARC_SETS
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.spec import ImageSpec
from stacks.versions.nodes import EFA, HUGEPAGES, INFINIBAND, node

PENDING_LIMIT = timedelta(minutes=2)
"""The time that a pod may be pending before it is reported."""

_NODE_CLASSES = "ec2nodeclasses.karpenter.k8s.aws"
"""Karpenter's object for nodes on EC2. Its status lists the reservations that it selects."""

_DEVICE_CLASSES = "deviceclasses.resource.k8s.io"

_ACCOUNT = "actions.github.com/controller-service-account-name"
"""A label of a controller's Deployment (charts/gha-runner-scale-set-controller 0.14.2, templates/deployment.yaml)."""
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")

_PLUGINS = {
    GPU: "does NVIDIA's device plugin or GPU operator run there?",
    EFA: "is the instance type in supportedInstanceLabels of the EFA device plugin, which leaves others out silently, "
    "and has the node group EFA interfaces? What runs there without would fall back to TCP",
    INFINIBAND: "does the SR-IOV or shared RDMA device plugin run there, with the resource name rdma/ib?",
    HUGEPAGES: "is EFA's driver installed there, which reserves them (vm.nr_hugepages), before the kubelet starts?",
}

_FIRST_ZSTD = {"containerd://": (1, 5), "docker://": (23, 0)}
"""The first releases that read zstd, by how a node names its runtime (containerd#4809, moby#41759)."""

_KEPT = "NamespaceFinalizersRemaining"
"""A condition of a namespace that is being deleted (kubernetes/api v0.35.4, core/v1/types.go:7070)."""

_OTHER = "does the plugin run there that offers it by this name?"


def warnings(config: KubernetesRunnersConfig, specs: Iterable[ImageSpec] = ()) -> list[str]:
    """Return one line for each problem that keeps jobs waiting, or images from running on the profile's nodes.

    If the cluster cannot be checked, the one line says why. ``specs`` are the stack's images.
    """
    try:
        images = list(specs)
        of_nodes = [_of_nodes(own, images) for own in config.all_sets]
        of_arc = (_charts(config), _controller(config), _unchecked(config))
        problems = (*of_nodes, *of_arc, _waiting(config), _replicas(config))
        return list(dict.fromkeys(printable(line) for lines in problems for line in lines))
    except FileNotFoundError:
        return [
            "kubectl is not on PATH: whether jobs wait for a runner, or for a device that no node offers, is not known"
        ]
    except Unanswered as error:
        return [f"the cluster does not answer kubectl: {error}"]
    except MALFORMED as error:
        return [kubectl.of_another_shape(error)]


def refusals(config: KubernetesRunnersConfig) -> list[str]:
    """Return one line for each namespace or scale set with which an update must not begin; none without an answer.

    So is one for nodes where a job would have the token of a runner.
    """
    checks = (_ending, _moved, _unprepared)
    lines: list[str] = []
    try:
        present = _known_items(config, ARC_SETS, f"--namespace={config.namespace}")
        lines += [line for each in present for check in checks if (line := check(config, each))]
        lines += (line for own in config.all_sets if own.job_daemon for line in _untainted(own))
        lines += _unserved(config)
        lines += _leaving(config)
    except (FileNotFoundError, Unanswered, *MALFORMED):  # the warnings say so
        pass
    return [printable(line) for line in lines]


def _leaving(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Refuse a namespace that is being deleted, and say what keeps it: each object would be refused there."""
    own = {config.namespace, config.jobs_namespace, config.build_namespace, config.controller_namespace}
    for each in _items(config, "namespaces", *(f"--selector={key}={value}" for key, value in LABELS.items())):
        name = each["metadata"]["name"]
        if name in own and each["metadata"].get("deletionTimestamp"):
            rows = each.get("status", {}).get("conditions", [])
            kept = [one_line(row["message"], kubectl.LONGEST) for row in rows if row["type"] == _KEPT]
            yield (
                f"{name}: the namespace is being deleted, and takes nothing new: run `pulumi up --refresh` once "
                f"kubectl get namespace {name} no longer has it{''.join(f'; it waits: {why}' for why in kept)}"
            )


def _ending(config: KubernetesRunnersConfig, scale_set: Item) -> str:
    """Refuse a scale set that is being deleted, after an interrupted update or ``destroy``.

    Helm takes the object for its own, as it is still there, and it goes with the last job.
    """
    if not scale_set["metadata"].get("deletionTimestamp"):
        return ""
    try:
        waits = any(serves(each, config.namespace) for each in _controllers(config))
    except Unanswered:  # who deploys need not see the organization's controller
        waits = True
    if not waits:
        return (
            f"{config.namespace}/{scale_set['metadata']['name']}: the scale set is being deleted, and no controller of "
            f"ARC runs in {config.arc_namespace} that ends it: start it again, or release the set by hand "
            f"({CONTROLLER_GONE})"
        )
    return (
        f"{config.namespace}/{scale_set['metadata']['name']}: the scale set is being deleted, and waits for the jobs "
        f"of its runners: run `pulumi up --refresh` once kubectl get --namespace {config.namespace} {ARC_SETS} no "
        "longer has it"
    )


def _moved(config: KubernetesRunnersConfig, scale_set: Item) -> str:
    """Refuse another controller for a scale set that is there.

    Each has a listener for it in its own namespace, and looks for none elsewhere (actions-runner-controller 0.14.2,
    controllers/actions.github.com/autoscalingrunnerset_controller.go:739).
    """
    metadata, wanted = scale_set["metadata"], config.arc.controller
    present = one_line(metadata.get("annotations", {}).get(ARC_CONTROLLER, ""))
    if ARC_LABEL not in metadata.get("labels", {}) or present == (wanted.name if wanted else ""):
        return ""
    return (
        f"{config.namespace}/{metadata['name']}: {present or 'a controller of the stack'} serves the scale set, and "
        "two would listen for it: run `slipway destroy`, then `slipway up`"
    )


def _unserved(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Refuse an organization's controller that is not there, or would leave or delete the scale sets of the charts."""
    given = config.arc.controller
    if given is None:
        return
    key = f"slipway:runners.arc.controller: {given.namespace}"
    found = _controllers(config)
    labelled = [(each["metadata"]["name"], each["metadata"].get("labels", {})) for each in found]
    own = [(name, labels) for name, labels in labelled if labels.get(_ACCOUNT, given.account) == given.account]
    if not own:
        others = ", ".join(one_line(labels[_ACCOUNT]) for _, labels in labelled)
        yield (
            f"{key} has no controller of ARC with the account '{given.account}': give the account of a Deployment "
            f"with the label {ARC_CONTROLLERS}; there: {others or 'none'}"
        )
    for name, labels in own:
        present, wanted = str(labels.get(ARC_LABEL, "")), arc.generation(config)
        if wanted and _RELEASE.fullmatch(present) and present.rpartition(".")[0] != wanted:
            yield (
                f"{key}/{name} is of ARC {present}, and deletes scale sets of {wanted}: give an arc.version, or "
                f"charts, of {present.rpartition('.')[0]}"
            )
        watched = one_line(labels.get(ARC_WATCHED, config.namespace))
        if watched != config.namespace:
            yield (
                f"{key}/{name} watches the namespace {watched} alone, by its value flags.watchSingleNamespace, and "
                f"would start no runner in {config.namespace}: name another controller"
            )


def _unchecked(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Say that an update goes on without what :func:`_unserved` refuses."""
    try:
        _ = _controllers(config) if config.arc.controller else ()
    except Unanswered as error:
        space = config.arc_namespace
        yield f"{space}: whether the organization's controller serves these runners is not known: {error}"


def _controllers(config: KubernetesRunnersConfig) -> list[Item]:
    return _items(config, "deployments.apps", f"--namespace={config.arc_namespace}", f"--selector={ARC_CONTROLLERS}")


def _unprepared(config: KubernetesRunnersConfig, scale_set: Item) -> str:
    """Refuse another minor release of ARC if the state does not have the present one.

    The engine replaces nothing where the old state has no trigger (pulumi v3.246.0, pkg/resource/deploy,
    shouldTriggerReplace). The controller alone would become another, and would delete the sets as it finds them.
    """
    metadata = scale_set["metadata"]
    present: str = metadata.get("labels", {}).get(ARC_LABEL, "")
    wanted = arc.generation(config)
    if not present or wanted in {None, present.rpartition(".")[0]} or metadata.get("annotations", {}).get(ARC_PREPARED):
        return ""
    return (
        f"{config.namespace}/{metadata['name']}: the scale set is of ARC {present}, and this release of Slipway has "
        f"not updated it yet, so that a change to {wanted} would not end its jobs first: run `pulumi up` once with the "
        f"charts of {present}, then with those of {wanted}"
    )


def _items(config: KubernetesRunnersConfig, *words: str) -> list[Item]:
    return kubectl.items(*words, kubeconfig=config.kubeconfig, context=config.context)


def _nodes(config: KubernetesRunnersConfig) -> list[Item]:
    """Return the nodes of the profile. There may be none: a pool may be scaled up for each job."""
    selector = ",".join(f"{key}={value}" for key, value in node(config.profile).selector.items())
    return _items(config, "nodes", f"--selector={selector}")


def _of_nodes(config: KubernetesRunnersConfig, specs: Iterable[ImageSpec]) -> Iterator[str]:
    nodes = _nodes(config)
    yield from _devices(config, nodes)
    yield from _device_class(config)
    yield from _drivers(config, nodes, specs)
    yield from _runtimes(config, nodes, specs)
    yield from _reservations(config)


def _devices(config: KubernetesRunnersConfig, nodes: list[Item]) -> Iterator[str]:
    """Compare the devices of the profile's nodes with those of a runner."""
    if not nodes:
        return
    for resource, requested in {**config.resources, HUGEPAGES: config.pages}.items():
        size, unit = (1024**2, "Mi") if resource == HUGEPAGES else (1, "")
        most = max(kubectl.offered(entry, resource) for entry in nodes) // size
        if most < requested:
            yield (
                f"no node of {config.profile} (there: {len(nodes)}) offers more than {most}{unit} {resource}, and a "
                f"runner asks for {requested}{unit}: {_PLUGINS.get(resource, _OTHER)}"
            )


def _device_class(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Look for the device class of the runners' claims. Without it a pod with a claim waits for a node for ever."""
    name = config.gpu_claim.of_class if config.gpu_claim else ""
    if name and not _known_items(config, _DEVICE_CLASSES, f"--field-selector=metadata.name={name}"):
        yield (
            f"the cluster has no device class {name}, of which a runner claims {config.devices[GPU]}: does NVIDIA's "
            "DRA driver run there, on Kubernetes 1.34 or later?"
        )


def _untainted(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Refuse nodes on which a job, which has the node by its Docker daemon, may meet a runner.

    A runner tolerates no taint. That the profile or the pool tolerates one says nothing of the nodes.
    """
    labels = config.node_labels.items()
    bare = [
        entry["metadata"]["name"]
        for entry in _nodes(config)
        if labels <= entry["metadata"].get("labels", {}).items()
        and not {"NoSchedule", "NoExecute"} & {taint["effect"] for taint in entry.get("spec", {}).get("taints", ())}
    ]
    if bare:
        yield (
            f"{node_drivers.listed(bare)}, of {config.profile}: no taint keeps runners away, and a job has the node of "
            "its Docker daemon, with the token of a runner there: give the nodes a taint that the profile or "
            f"slipway:runners.{config.key('tolerations')} tolerates"
        )


def _drivers(config: KubernetesRunnersConfig, nodes: list[Item], specs: Iterable[ImageSpec]) -> Iterator[str]:
    """Compare the drivers that labels of the profile's nodes name with those that the images need."""
    if not config.devices.get(GPU):
        return
    images = list(specs)
    for driver, names in node_drivers.of(nodes).by_driver.items():
        for clause in drivers.unfit(images, driver):
            yield f"{node_drivers.listed(names)}, of {config.profile}: {clause}: update the nodes' driver"


def _runtimes(config: KubernetesRunnersConfig, nodes: list[Item], specs: Iterable[ImageSpec]) -> Iterator[str]:
    """Look for nodes that cannot pull images with layers of zstd."""
    if not any(spec.suffix.zstd for spec in specs):
        return
    for entry in nodes:
        runtime = str(entry["status"].get("nodeInfo", {}).get("containerRuntimeVersion", ""))
        kind, first = next(((kind, first) for kind, first in _FIRST_ZSTD.items() if runtime.startswith(kind)), ("", ()))
        release = re.match(r"([0-9]+)\.([0-9]+)", runtime.removeprefix(kind))
        if release and tuple(map(int, release.groups())) < first:
            yield (
                f"{one_line(entry['metadata']['name'])}, of {config.profile}: {one_line(runtime)} pulls no layers of "
                f"zstd: set slipway:compression to {{kind: gzip}}, or update it to {'.'.join(map(str, first))}"
            )


def _reservations(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Look for the reservations in what Karpenter says of the node class that is to select them."""
    requested = config.reservation
    if requested is None or requested.node_class is None:
        return
    name = f"EC2NodeClass {requested.node_class}"
    classes = _known_items(config, _NODE_CLASSES, f"--field-selector=metadata.name={requested.node_class}")
    if not classes:
        yield f"the cluster has no {name}, so that no reserved machine becomes a node: make it, or name another"
        return
    selected = {each.get("id") for each in classes[0].get("status", {}).get("capacityReservations", ())}
    missing = sorted({*requested.ids} - selected) if requested.ids else [] if selected else ["any reservation"]
    if missing:
        yield (
            f"{name} does not select {', '.join(missing)}, so that no machine of it becomes a node: see its "
            "capacityReservationSelectorTerms, and Karpenter's feature gate ReservedCapacity"
        )


def _controller(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Look for the controller and its listener. Without them jobs stay queued at GitHub without an error."""
    space = config.arc_namespace
    try:
        pods = config.of_arc(kubectl.lasting(_items(config, "pods", f"--namespace={space}")))
    except Unanswered as error:
        if config.arc.controller is None:
            raise
        yield f"{space}: whether the organization's controller works is not known: {error}"
        return
    for pod in pods:
        reason = not_ready(pod)
        if reason:
            yield f"{space}/{pod['metadata']['name']} does not work, so that queued jobs get no runner: {reason}"
    if not pods and _items(config, "namespaces", f"--field-selector=metadata.name={space}"):
        yield f"{space} has no pod, so that queued jobs get no runner: kubectl get events --namespace {space}"
    elif not pods and _known_items(config, ARC_SETS, f"--namespace={config.namespace}"):
        again = (
            "the organization has to make its controller again"
            if config.arc.controller
            else "run `pulumi up --refresh`"
        )
        yield f"the namespace {space} is gone, so that queued jobs get no runner: {again}"
    if pods and not any("listener" in pod["metadata"]["name"] for pod in pods):
        yield (
            f"{space} has no listener, so that queued jobs get no runner: are runners.github.url and its credentials "
            f"right? {_log(config)}"
        )


def _charts(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Look for charts whose last revision has failed or was cut off, and for those whose scale set is gone.

    A refresh takes them for right, and the state forgets that one failed (pulumi-kubernetes 9497796,
    provider/pkg/provider/helm_release.go:1032, Read): no later update tries again. Nor does one if what was cut off is
    no longer asked for.
    """
    present = {each["metadata"]["name"] for each in _known_items(config, ARC_SETS, f"--namespace={config.namespace}")}
    missing = {own.scale_set for own in config.all_sets} - present
    for space in dict.fromkeys([config.namespace, *([] if config.arc.controller else [config.controller_namespace])]):
        latest: dict[str, tuple[int, str]] = {}
        for each in _items(config, "secrets", f"--namespace={space}", "--selector=owner=helm"):
            labels = each["metadata"]["labels"]
            revision = (int(labels["version"]), labels["status"])
            latest[labels["name"]] = max(revision, latest.get(labels["name"], revision))
        for name, (_, status) in sorted(latest.items()):
            if why := _unfinished(status, gone=space == config.namespace and name in missing):
                command = f"helm uninstall {name} --namespace {space}"
                yield f"{space}/{name}: {why}, run `{command}`, then `pulumi up --refresh`"


def _unfinished(status: str, *, gone: bool) -> str:
    """Return why a chart is to be installed again, and when; empty if it is not. ``gone`` is its scale set."""
    if status == "failed" or status.startswith("pending-"):
        return f"Helm's last revision of the chart is {status}: if this update leaves it so"
    if status == "deployed" and gone:
        return "the scale set is gone, and Helm still has its chart, so that jobs get no runner: to have it again"
    return ""


def _log(config: KubernetesRunnersConfig) -> str:
    """Return the command that prints the controller's log."""
    return f"kubectl logs --namespace {config.arc_namespace} --selector {ARC_CONTROLLERS}"


def _waiting(config: KubernetesRunnersConfig) -> Iterator[str]:
    spaces = [config.namespace, *([config.build_namespace] if config.build else [])]
    spaces += [config.jobs_namespace] * config.job_pods
    pods = {space: _items(config, "pods", f"--namespace={space}") for space in spaces}
    for space, pod in ((space, pod) for space, items in pods.items() for pod in items):
        if pod["status"].get("phase") == "Pending" and age(pod) > PENDING_LIMIT:
            yield f"{space}/{pod['metadata']['name']} has waited {_minutes(pod)}: {not_ready(pod)}"
    pod_names = {pod["metadata"]["name"] for pod in pods[config.namespace]}
    yield from _orphaned(config, pods[config.jobs_namespace] if config.job_pods else (), pod_names)
    yield from _without_pod(config, pod_names)


def _orphaned(config: KubernetesRunnersConfig, pods: Iterable[Item], pod_names: Collection[str]) -> Iterator[str]:
    """Look for pods of jobs whose runner is gone: ARC deletes those in its own namespace alone."""
    for pod in pods:
        name, runner = pod["metadata"]["name"], pod["metadata"].get("labels", {}).get("runner-pod")
        if runner not in pod_names and age(pod) > PENDING_LIMIT:
            yield (
                f"{config.jobs_namespace}/{name} keeps its devices, and its runner is gone: the sweeper ends it within "
                f"three minutes, else kubectl delete pod --namespace {config.jobs_namespace} {name}"
            )


def _without_pod(config: KubernetesRunnersConfig, pod_names: Collection[str]) -> Iterator[str]:
    """Look for runners that have failed, or have waited for a pod for too long."""
    for runner in _runners(config):
        name, status = runner["metadata"]["name"], runner.get("status", {})
        reason = one_line(status.get("message") or status.get("reason") or "", kubectl.LONGEST)
        if status.get("phase") == "Failed":
            yield (
                f"{config.namespace}/{name} has failed, and takes a runner's place until it is deleted: {reason}; "
                f"kubectl delete --namespace {config.namespace} {ARC_RUNNERS} {name}"
            )
        elif status.get("phase") in {None, "", "Pending"} and name not in pod_names and age(runner) > PENDING_LIMIT:
            yield f"{config.namespace}/{name} has waited {_minutes(runner)} and has no pod: {reason or _log(config)}"


def _replicas(config: KubernetesRunnersConfig) -> Iterator[str]:
    """Look for replicas of the build service that do not work: an update does without them, at the cost of its time.

    A pod that is pending is reported with the others. A platform's only daemon is not reported: its build says more.
    """
    several = {replica.named(NAME) for replica in config.replicas if replica.pool.replicas > 1}
    if not several:
        return
    space = config.build_namespace
    pods = _items(config, "pods", f"--namespace={space}")
    for replica in _items(config, "deployments.apps", f"--namespace={space}"):
        if replica["metadata"]["name"] not in several:
            continue
        selected = replica["spec"]["selector"]["matchLabels"].items()
        own = [pod for pod in pods if selected <= pod["metadata"].get("labels", {}).items()]
        if replica["status"].get("readyReplicas") or any(pod["status"].get("phase") == "Pending" for pod in own):
            continue
        if age(replica) > PENDING_LIMIT:
            reason = next(filter(None, map(not_ready, own)), "its pod is not ready" if own else "it has no pod")
            yield f"{space}/{replica['metadata']['name']} does not work, so that other replicas build for it: {reason}"


def _runners(config: KubernetesRunnersConfig) -> list[Item]:
    return _known_items(config, ARC_RUNNERS, f"--namespace={config.namespace}")


def _known_items(config: KubernetesRunnersConfig, *words: str) -> list[Item]:
    """Return objects of a kind that the cluster may not know: ARC's before the first update, or Karpenter's."""
    try:
        return _items(config, *words)
    except UnknownKind:
        return []


def _minutes(item: Item) -> str:
    return f"{int(age(item).total_seconds() // 60)} min"
