"""NetworkPolicies judged as a network would: may this connection be made? Kubernetes, "Network Policies".

A pod that no policy selects for a direction is open in it; one that some do may do what any of them allows. A connection
between two pods needs the egress of one and the ingress of the other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]


@dataclass(frozen=True)
class Peer:
    """One end of a connection: a pod by its namespace and labels, or, without a namespace, an address."""

    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def allowed(policies: Sequence[Policy], source: Peer, to: Peer, port: int, protocol: str = "TCP") -> bool:
    """Tell whether a connection can be made."""
    return _may(policies, "Egress", source, to, port, protocol) and _may(
        policies, "Ingress", to, source, port, protocol
    )


def _may(policies: Sequence[Policy], direction: str, pod: Peer, other: Peer, port: int, protocol: str) -> bool:
    if not pod.namespace:
        return True  # no policy is about what is no pod
    ours = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and direction in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], pod.labels)
    ]
    side = "to" if direction == "Egress" else "from"
    rules = [rule for spec in ours for rule in spec.get(direction.lower(), [])]
    return not ours or any(
        _port(rule, port, protocol)
        and (side not in rule or any(_is(peer, other, pod.namespace) for peer in rule[side]))
        for rule in rules
    )


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert not set(selector) - {"matchLabels"}, "an expression: teach me"
    expected: Mapping[str, str] = selector.get("matchLabels", {})
    return expected.items() <= labels.items()


def _port(rule: Mapping[str, Any], port: int, protocol: str) -> bool:
    return "ports" not in rule or any(
        entry["port"] == port and entry.get("protocol", "TCP") == protocol for entry in rule["ports"]
    )


def _is(peer: Mapping[str, Any], other: Peer, namespace: str) -> bool:
    if "ipBlock" in peer:
        block, address = peer["ipBlock"], ipaddress.ip_address(other.address)
        outside = [ipaddress.ip_network(cidr) for cidr in block.get("except", [])]
        return address in ipaddress.ip_network(block["cidr"]) and not any(address in network for network in outside)
    if "namespaceSelector" in peer:
        space = _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
        return bool(other.namespace) and space and _selects(peer.get("podSelector", {}), other.labels)
    return other.namespace == namespace and _selects(peer["podSelector"], other.labels)
