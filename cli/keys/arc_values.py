"""``slipway new --from``: values of ARC's chart gha-runner-scale-set as those of a stack, and what a stack cannot take.

The file may also have the ConfigMap with the template of the hook's pods, as a document of its own.
"""

from __future__ import annotations

import datetime
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

from cli.keys import other_tools_file
from containers.errors import MALFORMED, SlipwayError, one_line
from containers.image.gpu.node_labels import GPU
from containers.registry.reference import check_reference
from stacks.config.cluster.arc_config import ArcValuesConfig
from stacks.versions.nodes import EFA, INFINIBAND, node, node_names

_MOST_KEYS: Final = 5000
"""Most values of a file, whose aliases may name each many times."""

_KEYS: Final = {
    "minRunners": "minRunners",
    "maxRunners": "maxRunners",
    "runnerGroup": "group",
    "runnerScaleSetName": "namespace",
}
"""Keys of the chart by which a key of ours has another name, or the same one."""

_JOB_KEYS: Final = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral-storage": "disk",
    GPU: "gpus",
    EFA: "efa",
    INFINIBAND: "infiniband",
}
"""Resources of a container by the key that has them."""

_OTHER_NAMES: Final = {
    "gpus": ("gpuResource", re.compile(r"nvidia\.com/(?:mig-|gpu[.-]).+")),
    "infiniband": ("infinibandResource", re.compile(r"rdma/.+")),
}
"""Keys of devices, with the key of another name of theirs and the form of such names."""

_RUNNER: Final = "template.spec.containers.runner"
_IMAGES: Final = {
    f"{_RUNNER}.image": "image",
    "template.spec.initContainers.dind.image": "dockerImage",
    "template.spec.containers.dind.image": "dockerImage",
}
"""Images of containers by the key that has them."""
_GRACE: Final = "template.spec.terminationGracePeriodSeconds"
_ANY_JOB: Final = "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"
"""The variable of the runner by which it takes jobs without a container (actions/runner, JobExtension.cs)."""

_PASSED: Final = (
    *("annotations", "githubServerTLS", "keyVault", "labels", "listenerMetrics", "listenerTemplate", "proxy"),
    "resourceMeta",
)
"""Values of the chart that no key says, and ``arc.values.runners`` takes."""

_WHY: Final = {
    "githubConfigSecret": "a credential stays out of a stack's file: keep it as the secret 'github' of the namespace",
    "controllerServiceAccount": "arc.controller has a namespace and an account: give both",
    "listenerTemplate": "without its security context and what reads like a secret, arc.values.runners takes it",
    "proxy": "its address is wrong, or has a login: give arc.values.runners.proxy with credentialSecretRef",
    "containerMode.kubernetesModeWorkVolumeClaim": "jobs have their work in their own pod; `disk` limits it",
    "template.spec.serviceAccountName": "runners and jobs have accounts of their own, without a role",
    "template.spec.containers.runner.command": "it is GitHub's run.sh",
    "template.spec.containers.runner.env": "no key takes variables: set them in the workflow, or in your own image",
    "template.spec.containers.runner.resources": "a runner's own share is fixed; `cpu` and `memory` are its job's",
    "template.spec.nodeSelector": "a runner with jobPods waits on any node; its jobs have the nodes of their template",
    "template.spec.tolerations": "those of the jobs' template count; without one, give each taint its key alone",
    "template.spec.containers.runner.volumeMounts": "no key takes volumes",
    "template.spec.containers.dind": "Slipway has its own: `cpu`, `memory`, `dockerImage` and `network` are its keys",
    "template.spec.initContainers": "no key takes containers: pods have Slipway's own",
    "template.metadata": "pods have Slipway's own labels and annotations: a drain waits for a job",
    _ANY_JOB: "with jobPods, each job needs a `container:`",
    _GRACE: "`grace` takes whole minutes, from 1 to 1440",
    "template.spec.volumes": "no key takes volumes: a folder of the node would be shared by jobs that trust nobody",
    "template.spec.resourceClaims": "what it claims is in its template of claims: give `gpuClaim`",
    "job.metadata": "pods have Slipway's own labels and annotations: a drain waits for a job",
    "job.resourceClaims": "what it claims is in its template of claims: give `gpuClaim`",
    "job.serviceAccountName": "jobs have an account of their own, without a role",
    "job.automountServiceAccountToken": "a job's pod has no token",
    "job.containers.$job.env": "no key takes variables: set them in the workflow",
    "job.containers.$job.volumeMounts": "no key takes volumes: a folder of the node would be shared by jobs",
    "job.volumes": "no key takes volumes: a folder of the node would be shared by jobs that trust nobody",
    "job.containers.$job.resources.limits.cpu": "`cpu` is what a job requests, and it may use what the node has",
    "job.containers.$job.resources.requests.memory": "`memory` is both what a job requests and its limit",
}
"""Why a key has no equal, by its beginning."""

_WHY_ANYWHERE: Final = {
    "claims": "what it claims is in its template of claims: give `gpuClaim`",
    "affinity": "`nodeSelector` has labels of the nodes, each with one value",
    "dnsConfig": "pods have the cluster's DNS",
    "dnsPolicy": "pods have the cluster's DNS",
    "envFrom": "no key takes variables: set them in the workflow",
    "hostAliases": "pods have the cluster's DNS",
    "hostIPC": "a pod shares nothing with its node",
    "hostNetwork": "a pod shares nothing with its node",
    "hostPID": "a pod shares nothing with its node",
    "hugepages-1Gi": "huge pages follow `efa`",
    "hugepages-2Mi": "huge pages follow `efa`",
    "imagePullPolicy": "a node pulls a tag once",
    "priorityClassName": "runners and jobs have a priority of Slipway's own, below that of other pods",
    "schedulerName": "the cluster's default scheduler places the pods",
    "securityContext": "a container has the rights that its devices and its Docker daemon need",
    "topologySpreadConstraints": "runners that are spread would cost a node each",
}
"""Why a key has no equal, by a part of it, wherever that is."""


class _Text(yaml.SafeLoader):
    """Makes nothing but text of scalars, as they are written; ``<<`` merges a block, as in Helm's YAML."""


_Text.yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("<<$"))]}


def arc_values(path: Path, profile: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return a stack's values from a file of the chart's values, and a line for each key that it cannot take.

    ``profile`` is that of the nodes; without one, it follows from their labels.

    Raises:
        SlipwayError: the file cannot be read, has no values of the chart, or devices of an unknown profile.
    """
    values, typed, template = _documents(path)
    try:
        translated, left = _translated(values, typed, template, profile)
    except MALFORMED as error:
        raise SlipwayError(
            f"--from {path}: has another shape than values of the chart gha-runner-scale-set: {type(error).__name__}"
        ) from None
    runners = translated["runners"]
    for key in ("gpus", "efa", "infiniband"):
        if runners.get(key, "0") != "0" and not (profile or "profile" in runners):
            raise SlipwayError(
                f"--from {path}: it has {key}, and no label says which nodes those are: give "
                "runners.profile=NAME after the file, such as eks-p5 (stacks/versions/nodes.toml has all)"
            )
    return translated, left


def _translated(
    values: dict[str, Any], typed: dict[str, Any], template: dict[str, Any], profile: str
) -> tuple[dict[str, Any], list[str]]:
    flat = [
        *islice(_flat(values), _MOST_KEYS),
        *((f"job.{key}", value) for key, value in islice(_flat(template), _MOST_KEYS)),
    ]
    if len(flat) >= _MOST_KEYS:
        raise ValueError
    rest = dict(flat)
    runners: dict[str, Any] = {"kind": "kubernetes"}
    github: dict[str, Any] = {"url": rest.pop("githubConfigUrl", "")}
    secret = rest.get("githubConfigSecret")
    github["secret"] = rest.pop("githubConfigSecret") if isinstance(secret, str) and secret else "github"
    runners["github"] = github
    for key, own in _KEYS.items():
        if rest.get(key):
            runners[own] = rest.pop(key)
    labels = _list(rest, "scaleSetLabels")
    others = [each for each in labels if each != runners.get("namespace")]
    runners |= {"labels": others} if others else {}
    mode = rest.pop("containerMode.type", "")
    if mode in {"kubernetes", "kubernetes-novolume"}:
        runners["jobPods"] = "true"
        variables = {each["name"]: each.get("value") for each in rest.get(f"{_RUNNER}.env", [])}
        if variables.get(_ANY_JOB) == "false":
            rest[_ANY_JOB] = "false"
    elif mode and mode != "dind":
        rest["containerMode.type"] = mode
    nodes, container = ("job", "job.containers.$job") if template else ("template.spec", _RUNNER)
    _take_nodes(rest, nodes, runners, profile)
    _take_image(rest, runners)
    _take_pull_secrets(rest, runners)
    _take_controller(rest, typed, runners)
    _take_grace(rest, runners)
    own_size = {"cpu", "memory"}
    _take_size(rest, runners, container, {*_JOB_KEYS.values()} - (set() if template else own_size))
    for docker in () if "jobPods" in runners else ("containers.dind", "initContainers.dind"):
        _take_size(rest, runners, f"template.spec.{docker}", own_size)
    _take_shm(rest, runners, f"{nodes}.volumes", f"{container}.volumeMounts")
    return {"flavor": "runners", "runners": runners}, list(_left(rest))


def _documents(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the chart's values as text, and as YAML has them; and the hook's template if the file has it."""
    content = other_tools_file.content(path, "values of ARC's chart")
    try:
        documents = [*yaml.load_all(content, Loader=_Text)]
        typed = [each for each in yaml.safe_load_all(content) if isinstance(each, dict) and "githubConfigUrl" in each]
    except (yaml.YAMLError, RecursionError, ValueError):
        raise SlipwayError(f"--from {path}: is not YAML: expected values of the chart gha-runner-scale-set") from None
    values = [each for each in documents if isinstance(each, dict) and "githubConfigUrl" in each]
    if len(values) != 1:
        raise SlipwayError(
            f"--from {path}: expected one document with githubConfigUrl, as values of the chart gha-runner-scale-set "
            f"have (in a HelmRelease, or for a parent chart: that part alone); it has {len(values)}"
        )
    for each in documents:
        for text in _texts(each):
            template = _yaml(text)
            if isinstance(template, dict) and "$job" in text and isinstance(template.get("spec"), dict):
                return values[0], typed[0], {**template["spec"], "metadata": template.get("metadata")}
    return values[0], typed[0], {}


def _texts(document: Any) -> list[str]:
    data = document.get("data") if isinstance(document, dict) and document.get("kind") == "ConfigMap" else None
    return [text for text in data.values() if isinstance(text, str)] if isinstance(data, dict) else []


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Text)  # noqa: S506 - it makes nothing but text of scalars
    except (yaml.YAMLError, RecursionError):
        return None


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value by its path; containers have their name in it, and other lists are values."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}{key}.")
    elif prefix.endswith(("containers.", "initContainers.")) and isinstance(value, list):
        for item in value:
            inner = {key: part for key, part in item.items() if key != "name"} if isinstance(item, Mapping) else item
            yield from _flat(inner, f"{prefix}{item.get('name', '?') if isinstance(item, Mapping) else '?'}.")
    elif value not in ("", [], {}, None):
        yield prefix.removesuffix("."), value


def _list(rest: dict[str, Any], key: str) -> list[Any]:
    """Take a list; raises TypeError for anything else."""
    value = rest.pop(key, [])
    if not isinstance(value, list):
        raise TypeError
    return value


def _take_nodes(rest: dict[str, Any], where: str, runners: dict[str, Any], profile: str) -> None:
    """Take the profile of the nodes, the labels and taints that it has not, and the runtime class."""
    prefix = f"{where}.nodeSelector."
    selector = _required(rest, where)
    selector |= {key.removeprefix(prefix): rest.pop(key) for key in [*rest] if key.startswith(prefix)}
    profile = profile if profile in node_names() else _profile(selector)
    own = node(profile).selector.items() if profile else ()
    known = [dict(each) for each in node(profile).tolerations] if profile else []
    given = _list(rest, f"{where}.tolerations")
    taken = [each for each in given if isinstance(each, dict) and each.get("key") and "tolerationSeconds" not in each]
    if left := [each for each in given if each not in taken]:
        rest[f"{where}.tolerations"] = left
    values = {
        "profile": profile,
        "nodeSelector": {key: value for key, value in selector.items() if (key, value) not in own},
        "tolerations": [each for each in taken if each not in known],
        "runtimeClass": rest.pop(f"{where}.runtimeClassName", ""),
    }
    runners |= {key: value for key, value in values.items() if value}


def _required(rest: dict[str, Any], where: str) -> dict[str, str]:
    """Take the labels that an affinity requires of the nodes, if `nodeSelector` can: each with one value."""
    key = f"{where}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = rest.get(key, [])
    if len(terms) != 1 or terms[0].keys() != {"matchExpressions"}:
        return {}
    rows = terms[0]["matchExpressions"]
    if any(row["operator"] != "In" or len(row["values"]) != 1 for row in rows):
        return {}
    del rest[key]
    return {row["key"]: row["values"][0] for row in rows}


def _profile(selector: Mapping[str, str]) -> str:
    """Return the profile with its labels, or its instance type, among those of the nodes; empty without one."""
    machine = next((value for key, value in selector.items() if posixpath.basename(key) == "instance-type"), "")
    for row in map(node, node_names()):
        typed = row.selector.get("node.kubernetes.io/instance-type")
        if row.pool and (row.selector.items() <= selector.items() or (machine and machine == typed)):
            return row.name
    return ""


def _take_image(rest: dict[str, Any], runners: dict[str, Any]) -> None:
    for key, own in _IMAGES.items():
        image = str(rest.get(key, ""))
        if image and not image.endswith(":latest"):
            try:
                runners[own] = check_reference(image)
            except ValueError:
                continue
            del rest[key]


def _take_pull_secrets(rest: dict[str, Any], runners: dict[str, Any]) -> None:
    """Take the secrets by which runners and jobs pull their images: all pods of the stack have them."""
    names = []
    for key in ("template.spec.imagePullSecrets", "job.imagePullSecrets"):
        names += [each["name"] for each in _list(rest, key)]
    runners |= {"pullSecrets": [*dict.fromkeys(names)]} if names else {}


def _take_controller(rest: dict[str, Any], typed: Mapping[str, Any], runners: dict[str, Any]) -> None:
    """Take the organization's controller, and the values that are passed to the chart as they are."""
    arc: dict[str, Any] = {}
    names = [rest.get(f"controllerServiceAccount.{key}") for key in ("namespace", "name")]
    if all(names):
        arc["controller"] = dict(zip(("namespace", "account"), names, strict=True))
        _drop(rest, "controllerServiceAccount")
    passed: dict[str, Any] = {}
    for key in _PASSED:
        if not typed.get(key):
            continue
        try:
            values = ArcValuesConfig.model_validate({"runners": {key: typed[key]}})
            ports = sorted({*values.proxy_ports} - {80, 443})
        except ValueError:
            continue
        passed[key] = _plain(typed[key])
        _drop(rest, key)
        runners |= {"network": {"ports": ports}} if ports else {}
    arc |= {"values": {"runners": passed}} if passed else {}
    runners |= {"arc": arc} if arc else {}


def _plain(value: Any) -> Any:
    """Return a value without numbers such as 1.0, which a stack's file does not have unquoted, and without dates."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return str(value) if isinstance(value, datetime.date) else value


def _drop(rest: dict[str, Any], start: str) -> None:
    for key in [key for key in rest if f"{key}.".startswith(f"{start}.")]:
        del rest[key]


def _take_size(rest: dict[str, Any], runners: dict[str, Any], container: str, own_keys: Collection[str]) -> None:
    """Take what a container may use, by some keys. A request beside another limit stays, or the limit."""
    prefix = f"{container}.resources."
    named = dict.fromkeys(key.removeprefix(prefix).partition(".")[2] for key in rest if key.startswith(prefix))
    for resource in named:
        others = (key for key, (_, names) in _OTHER_NAMES.items() if names.fullmatch(resource))
        own = _JOB_KEYS.get(resource) or next(others, "")
        if own not in own_keys or own in runners:
            continue
        parts = ("requests", "limits") if own == "cpu" else ("limits", "requests")
        keys = [key for part in parts if (key := f"{prefix}{part}.{resource}") in rest]
        value = str(rest[keys[0]])
        for key in keys:
            if str(rest[key]) == value:
                del rest[key]
        if own == "cpu" and re.fullmatch(r"[0-9]*\.[0-9]+", value):
            value = f"{float(value) * 1000:.0f}m"
        runners[own] = f"{value}Gi" if own == "disk" and re.fullmatch(r"[0-9]+", value) else value
        if resource not in _JOB_KEYS:
            runners[_OTHER_NAMES[own][0]] = resource


def _take_grace(rest: dict[str, Any], runners: dict[str, Any]) -> None:
    """Take how long a job that runs is waited for, if our key can say it."""
    seconds = rest.get(_GRACE, "")
    if seconds.isdecimal() and int(seconds) in range(60, 1441 * 60, 60):
        runners["grace"] = str(int(rest.pop(_GRACE)) // 60)


def _take_shm(rest: dict[str, Any], runners: dict[str, Any], volumes: str, mounts: str) -> None:
    """Take the size of /dev/shm of a container with GPUs: that of a volume in memory."""
    at_shm = [each for each in rest.get(mounts, []) if each["mountPath"] == "/dev/shm"]  # noqa: S108 - the file's
    names = [each["name"] for each in at_shm]
    memory = [each for each in rest.get(volumes, []) if each["name"] in names and "emptyDir" in each]
    if runners.get("gpus", "0") == "0" or len(memory) != 1 or memory[0]["emptyDir"].keys() != {"medium", "sizeLimit"}:
        return
    runners["shm"] = memory[0]["emptyDir"]["sizeLimit"]
    for key, taken in ((mounts, at_shm), (volumes, memory)):
        rest[key] = [each for each in rest[key] if each not in taken]
        if not rest[key]:
            del rest[key]


def _left(rest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key that no key takes; none has a value, which may be a credential."""
    lines: dict[str, str] = {}
    for key in rest:
        start = next((start for start in sorted(_WHY, key=len, reverse=True) if f"{key}.".startswith(f"{start}.")), "")
        why = _WHY.get(start, "no key of Slipway's takes it")
        parts = key.split(".")
        for number, part in enumerate(parts) if not start else ():
            if part in _WHY_ANYWHERE:
                start, why = ".".join(parts[: number + 1]), _WHY_ANYWHERE[part]
                break
        if key in _IMAGES:
            why = "its tag moves: the image of Slipway's release is used; give one with a version in runners.image"
        lines[start or key] = why
    for key, why in lines.items():
        yield f"{one_line(key)}: {why}"
