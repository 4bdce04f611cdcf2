"""``runners.arc``: GitHub's Actions Runner Controller (ARC), the stack's or the organization's own, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from containers import secret_words
from containers.errors import one_line, suggest
from stacks.config.model import Model, NonEmpty, form, refuse_unread

ARC_CHARTS = ("gha-runner-scale-set-controller", "gha-runner-scale-set")
"""The names of the charts: of the controller, and of the runners."""
ARC_PREPARED = "slipway/arc"
"""The annotation of a scale set whose state has the time in which its jobs end, and its minor release of ARC, with
which it is made anew: empty where the charts name none."""
ARC_CONTROLLER = "slipway/controller"
"""The annotation of a scale set that the organization's own controller serves: namespace and account of that one."""
ARC_LABEL = "app.kubernetes.io/version"
"""The charts' label of a scale set: their release of ARC."""
ARC_SETS = "autoscalingrunnersets.actions.github.com"
ARC_RUNNERS = "ephemeralrunners.actions.github.com"
"""ARC's object for each runner, older than its pod. Only this object says why a pod could not be created."""
ARC_SET_NAME = "actions.github.com/scale-set-name"
"""ARC's label of what is of one scale set."""

ARC_VERSION: Final = "0.14.2"
"""Release of both charts of GitHub's Actions Runner Controller."""

_OLDEST_ARC: Final = "0.14.0"
"""Below it the charts ignore ``scaleSetLabels`` (docs/gha-runner-scale-set-controller/README.md of ARC, 0.14.0: #4408);
below 0.13.1 a runner that the quota refuses once gets no pod (0.13.1: #4305)."""

_NAMES: Final[Mapping[str, str]] = {
    "controller": "affinity env flags fullnameOverride image imagePullSecrets labels metrics nameOverride "
    "namespaceOverride nodeSelector podAnnotations podLabels podSecurityContext pprof priorityClassName replicaCount "
    "resources securityContext serviceAccount tolerations topologySpreadConstraints volumeMounts volumes",
    "runners": "annotations containerMode controllerServiceAccount githubConfigSecret githubConfigUrl githubServerTLS "
    "keyVault labels listenerMetrics listenerTemplate maxRunners minRunners nameOverride namespaceOverride proxy "
    "resourceMeta runnerGroup runnerScaleSetName scaleSetLabels template",
}
"""The values that the templates of each chart of :data:`ARC_VERSION` read."""

_OURS: Final[Mapping[str, Mapping[str, str]]] = {
    "controller": {
        "flags.watchSingleNamespace": "it is runners.namespace",
        "fullnameOverride": "the controller has the name that Slipway gives it",
        "image.repository": "give slipway:mirrors.images",
        "image.tag": "give arc.version",
        "nameOverride": "the controller has the name that Slipway gives it",
        "namespaceOverride": "it is made from runners.namespace",
        "podSecurityContext.runAsNonRoot": "its namespace admits no other",
        "podSecurityContext.seccompProfile": "its namespace admits no other",
        "securityContext.allowPrivilegeEscalation": "its namespace admits no other",
        "securityContext.capabilities": "its namespace admits no other",
        "securityContext.readOnlyRootFilesystem": "the controller writes no file",
        "serviceAccount.create": "give arc.controller for a controller with another account",
        "serviceAccount.name": "give arc.controller for a controller with another account",
    },
    "runners": {
        "containerMode": "give runners.daemon or runners.jobPods",
        "controllerServiceAccount": "give arc.controller",
        "githubConfigSecret": "give runners.github, which keeps a credential secret",
        "githubConfigUrl": "give runners.github.url",
        "listenerTemplate.spec.containers.listener.securityContext.allowPrivilegeEscalation": "the listener needs none",
        "listenerTemplate.spec.containers.listener.securityContext.capabilities": "the listener needs none",
        "listenerTemplate.spec.securityContext.runAsNonRoot": "the listener needs no other",
        "listenerTemplate.spec.securityContext.seccompProfile": "the listener needs no other",
        "maxRunners": "give runners.maxRunners",
        "minRunners": "give runners.minRunners",
        "namespaceOverride": "give runners.namespace",
        "resourceMeta.autoscalingRunnerSet.annotations.slipway/arc": "Slipway reads it",
        "resourceMeta.autoscalingRunnerSet.annotations.slipway/controller": "Slipway reads it",
        "runnerGroup": "give runners.group",
        "runnerScaleSetName": "give runners.namespace, or a name in runners.sets",
        "scaleSetLabels": "give runners.labels",
        "template": "give the keys of runners, such as image, tolerations, disk, pullSecrets",
    },
}
"""Where Slipway sets each chart's values, and what to do instead."""

_ACCOUNT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_PROXIES: Final = ("http", "https", "noProxy")
"""The names in the chart's ``proxy`` (actions-runner-controller 0.14.2, charts/gha-runner-scale-set/values.yaml)."""
_LOGIN = re.compile(r"://[^/\s'\"]*@")
"""A login in an address, wherever a value has one."""


def check_arc(version: str) -> str:
    """Return a release of ARC; raises ValueError for one that is too old for these runners."""
    if tuple(map(int, version.split("."))) < tuple(map(int, _OLDEST_ARC.split("."))):
        raise ValueError(
            f"is too old: before {_OLDEST_ARC} the charts ignore labels, and a runner that the quota refuses once gets "
            f"no pod: give {_OLDEST_ARC} or later"
        )
    return version


def by_name(items: Any) -> dict[str, Any] | None:
    """Return a list of containers, or of what else has names, by name; None for anything else."""
    if not isinstance(items, list) or not items:
        return None
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items):
        return None
    return {item["name"]: dict(item) for item in items}


def _paths(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each value with it. Containers have their name in it; another list is a value."""
    inner = by_name(value) if prefix.endswith("ontainers") else value
    if not isinstance(inner, Mapping):
        yield prefix, value
        return
    for key, item in inner.items():
        yield from _paths(item, f"{prefix}.{key}" if prefix else str(key))


def _check_values(chart: str, values: Mapping[str, Any]) -> None:
    """Raise ValueError for a value that Slipway sets, in it or above it. None of its contents are in the message."""
    for path, value in _paths(dict(values)):
        for own, instead in _OURS[chart].items():
            if f"{path}.".startswith(f"{own}.") or own.startswith(f"{path}."):
                raise ValueError(f"{one_line(own)}: Slipway sets this value of the chart: leave it out; {instead}")
        if _LOGIN.search(str(value)):
            raise ValueError(
                f"{one_line(path)}: has a login, which the state would hold in clear text: leave it out, and name a "
                "secret of the cluster, as in credentialSecretRef of a proxy"
            )
        for variable in (by_name(value) or {}).values() if path.endswith("env") else ():
            if variable.get("value") and secret_words.NAME.search(variable["name"]):
                raise ValueError(
                    f"{one_line(path)}: the variable {one_line(variable['name'])} reads like a secret, which the state "
                    "would hold in clear text: give valueFrom"
                )


def _check_proxy(proxy: Any) -> None:
    """Raise ValueError for a proxy with a wrong address, or one that the chart or ARC would silently leave out."""
    if not isinstance(proxy, Mapping):
        raise ValueError("proxy: expected {https: {url: http://proxy.example:3128}}")  # noqa: TRY004 - pydantic's
    for name, part in proxy.items():
        if name not in _PROXIES:
            raise ValueError(
                f"proxy: has no '{one_line(name)}'{suggest(name, _PROXIES)}; it has: {', '.join(_PROXIES)}"
            )
        if name == _PROXIES[2]:
            if not isinstance(part, list | None):
                raise ValueError(f"proxy.{name}: expected a list, such as [.svc]")
        elif part and not (isinstance(part, Mapping) and isinstance(part.get("url"), str)):
            raise ValueError(f"proxy.{name}: expected {{url: http://proxy.example:3128}}")
        elif part and not _port(part["url"]):
            raise ValueError(f"proxy.{name}.url: is no address, such as http://proxy.example:3128")


def _port(url: str) -> int:
    """Return the port of an address; 0 if it is none. Without a scheme, what is before the port would be one."""
    try:
        return (urlsplit(url).port or (443 if url.startswith("https:") else 80)) if "://" in url else 0
    except ValueError:
        return 0


class ArcControllerConfig(Model):
    """The organization's own controller of ARC, which the stack neither makes nor changes."""

    namespace: Annotated[str, form(_NAMESPACE, "the name of a namespace, such as arc-systems")] = Field(
        description="Namespace of the controller, where its listeners run."
    )
    account: Annotated[str, form(_ACCOUNT, "the name of a service account")] = Field(
        description="Service account of the controller, which gets a role in the runners' namespace."
    )

    @property
    def name(self) -> str:
        """Namespace and account, as a scale set is marked with them."""
        return f"{self.namespace}/{self.account}"


class ArcValuesConfig(Model):
    """Values of ARC's charts that no key of Slipway's says, as the charts write them."""

    controller: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of gha-runner-scale-set-controller: {priorityClassName: system-cluster-critical}.",
    )
    runners: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of gha-runner-scale-set, for each set: {proxy: {https: {url: http://proxy.example:3128}}}.",
    )

    @field_validator("controller")
    @classmethod
    def _of_controller(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_values("controller", value)
        return value

    @field_validator("runners")
    @classmethod
    def _of_runners(cls, value: dict[str, Any]) -> dict[str, Any]:
        _check_values("runners", value)
        _check_proxy(value.get("proxy") or {})
        return value

    @property
    def _proxies(self) -> dict[str, Mapping[str, Any]]:
        proxy = self.runners.get("proxy") or {}
        return {name: proxy[name] for name in _PROXIES[:2] if proxy.get(name)}

    @property
    def proxy_ports(self) -> dict[int, str]:
        """The ports of the proxies that runners and their listener use, with the path of each."""
        return {_port(part["url"]): f"proxy.{name}.url" for name, part in self._proxies.items()}

    @property
    def proxy_variables(self) -> dict[str, str]:
        """The variables of the proxies without a login, by the names that ARC gives a runner's container.

        What is in the cluster has its own way: ``.svc`` and the pod itself are added to ``noProxy``.
        """
        urls = {
            f"{name}_proxy": part["url"] for name, part in self._proxies.items() if not part.get("credentialSecretRef")
        }
        others = self.runners["proxy"].get("noProxy") if urls else None
        direct = [*(map(str, others) if isinstance(others, list) else ()), "localhost", "127.0.0.1", ".svc"]
        return {**urls, "no_proxy": ",".join(direct)} if urls else {}


class ArcConfig(Model):
    """GitHub's Actions Runner Controller (ARC), from its own Helm charts."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$"), AfterValidator(check_arc)] = Field(
        ARC_VERSION, description=f"Release of both charts, {_OLDEST_ARC} or later."
    )
    charts: NonEmpty | None = Field(
        None,
        description="Folder, relative to the checkout, with both charts unpacked, each in a folder of its name. "
        "Default: GitHub's registry.",
    )
    controller: ArcControllerConfig | None = Field(
        None,
        description="The organization's own controller, of the same minor release, which serves these runners: "
        "{namespace: arc-systems, account: arc-gha-rs-controller}. Default: the stack brings one.",
    )
    values: ArcValuesConfig | None = Field(
        None, description="Values of both charts that no key of Slipway's says. Those that it sets are refused."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.charts and self.version != ARC_VERSION:
            raise ValueError(
                f"version {self.version}: the charts in {self.charts} are of a version of their own: leave out version "
                "or charts"
            )
        return self

    @model_validator(mode="after")
    def _known_values(self) -> Self:
        """Check the names of values if the release is known: its templates read these, and Helm ignores any other."""
        if self.values is None:
            return self
        if self.controller:
            refuse_unread(self.values, {"arc.controller is the organization's own": ["controller"]})
        for chart, names in _NAMES.items() if self.version == ARC_VERSION and not self.charts else ():
            known = names.split()
            for name in getattr(self.values, chart):
                if name not in known:
                    raise ValueError(
                        f"values.{chart}: the chart of {ARC_VERSION} has no value '{one_line(name)}'"
                        f"{suggest(name, known)}; it has: {', '.join(known)}"
                    )
        return self
