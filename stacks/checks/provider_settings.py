"""Settings of other namespaces: those of Pulumi's providers reach these, or are refused; what others read is theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from containers.errors import one_line
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import config_key

NAMESPACES = ("aws", "docker", "kubernetes", "pulumi")

_LOGIN = (
    *("accessKey", "secretKey", "token", "profile", "assumeRoles", "assumeRoleWithWebIdentity"),
    *("sharedConfigFiles", "sharedCredentialsFiles"),
)
_CLUSTER = {
    "kubeconfig": "slipway:runners.kubeconfig",
    "context": "slipway:runners.context",
    "namespace": "slipway:runners.namespace",
    "cluster": "slipway:runners.context",
    "renderYamlToDirectory": "",
}
_ENGINE = (
    *("host", "context", "caMaterial", "certMaterial", "keyMaterial", "certPath", "sshOpts"),
    "disableDockerDaemonCheck",
)
_DEFAULT_PROVIDERS = ("*", "docker", "pulumi-python")
"""Entries of ``pulumi:disable-default-providers`` without which images and checks have no provider."""


def refusals(config: StackConfig, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each of ``settings``, values of other namespaces by full key, that would not count."""
    for key, value in settings.items():
        namespace, name = config_key(key)
        if reason := _REASONS.get(namespace, _none)(config, name, value):
            yield f"{key}: {reason}: leave it out"


def _none(_: StackConfig, __: str, ___: Any) -> str | None:
    return None


def _aws(config: StackConfig, name: str, value: Any) -> str | None:
    blocks = (config.runners, config.registry)
    at_aws = [each for each in blocks if isinstance(each, Ec2RunnersConfig | EcrRegistryConfig)]
    reserved = config.runners is not None and any(own.reservation for own in config.runners.all_sets)
    if not at_aws:
        if reserved:
            return None if name == "profile" else "AWS's SDK looks up the nodes' reservations, and knows profile alone"
        return "nothing of the stack is at AWS"
    regions = {each.region for each in at_aws}
    if name == "region" and value not in regions:
        return f"'{one_line(str(value))}': the stack names its own, {' and '.join(sorted(regions))}"
    if name == "allowedAccountIds":
        return "the stack's own account is the one that is allowed"
    if name in _LOGIN and isinstance(config.runners, Ec2RunnersConfig) and config.runners.build:
        return "the builder is reached by AWS's CLI, which does not know it: set AWS's variables, as AWS_PROFILE"
    if name in _LOGIN and name != "profile" and reserved:
        return "reservations are looked up by AWS's SDK, which does not know it: set AWS's variables, as AWS_PROFILE"
    return None


def _kubernetes(config: StackConfig, name: str, _: Any) -> str | None:
    if config.cluster_runners is None:
        return "nothing of the stack is in a cluster"
    if name in _CLUSTER:
        return f"give {_CLUSTER[name]} instead" if _CLUSTER[name] else "ARC has to be in a cluster"
    return None


def _docker(config: StackConfig, name: str, _: Any) -> str | None:
    if name in _ENGINE and (config.engines or config.build_on == "runners"):
        return "the stack names its engines, by slipway:engines or slipway:buildOn"
    if name == "context":
        return "give docker:host instead, the address that `docker context inspect` prints"
    return None


def _pulumi(_: StackConfig, name: str, value: Any) -> str | None:
    listed: Collection[str] = value if isinstance(value, list) else str(value).strip("[] ").replace('"', "").split(",")
    needed = [entry for entry in listed if entry.strip() in _DEFAULT_PROVIDERS]
    if name == "disable-default-providers" and needed:
        return f"'{needed[0].strip()}': Docker images and checks have Pulumi's default provider"
    return None


_REASONS = {"aws": _aws, "kubernetes": _kubernetes, "docker": _docker, "pulumi": _pulumi}
