"""The engine's own network: a bridge with a free subnet, and three firewall rules that let it out.

The engine runs with `--iptables=false`: two engines that both write Docker's chains flush each other's rules. What it
would have written for its one bridge is written here, and taken away with the bridge.
"""

import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine.steps import output
from toolchain.machine.toolchain_error import ToolchainError

SUBNETS: Final = ipaddress.IPv4Network("10.201.0.0/16")
"""Where a /24 is taken from: private, and not in the ranges that Docker, Podman and Kubernetes take by themselves."""


def name(checkout: Checkout) -> str:
    """Return the interface's name: 15 characters, the most that Linux takes."""
    return f"slipway{checkout.id}"


def _used_networks() -> list[ipaddress.IPv4Network]:
    """Return the networks that this machine has a route to, without the default route."""
    networks = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[index]), "little") for index in (1, 7))
        if mask:
            networks.append(ipaddress.IPv4Network((address, str(ipaddress.IPv4Address(mask))), strict=False))
    return networks


def _free(checkout: Checkout) -> ipaddress.IPv4Network:
    """Return a free /24. Each checkout starts its search elsewhere, so that two at once do not collide."""
    subnets, used = list(SUBNETS.subnets(new_prefix=24)), _used_networks()
    start = int(checkout.id, 16) % len(subnets)
    for subnet in (*subnets[start:], *subnets[:start]):
        if not any(subnet.overlaps(network) for network in used):
            return subnet
    raise ToolchainError(f"no free network for the engine: all of {SUBNETS} is routed on this machine")


def _rules(checkout: Checkout, subnet: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the table, the chain, and the match and target of each rule."""
    bridge = name(checkout)
    yield "nat", "POSTROUTING", ["-s", subnet, "!", "-o", bridge, "-j", "MASQUERADE"]
    yield "filter", "FORWARD", ["-i", bridge, "-j", "ACCEPT"]
    replies = ["-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"]
    yield "filter", "FORWARD", ["-o", bridge, *replies, "-j", "ACCEPT"]


def _iptables(action: str, table: str, chain: str, rule: list[str]) -> None:
    output(["iptables", "-w", "10", "-t", table, action, chain, *rule])


def subnet(checkout: Checkout) -> str | None:
    """Return the network of the bridge, as `10.201.7.0/24`, None where there is no bridge."""
    try:
        interfaces = json.loads(output(["ip", "-j", "-4", "address", "show", "dev", name(checkout)]))
    except ToolchainError:
        return None
    addresses = [entry for interface in interfaces for entry in interface.get("addr_info", [])]
    if not addresses:
        return None
    return str(ipaddress.ip_network(f"{addresses[0]['local']}/{addresses[0]['prefixlen']}", strict=False))


def mtu() -> int:
    """Return the MTU of the way out of this machine: a tunnel or a cloud may be narrower than Ethernet's 1500."""
    routes = json.loads(output(["ip", "-j", "route", "show", "default"]) or "[]")
    devices = [route["dev"] for route in routes if "dev" in route]
    return int(Path(f"/sys/class/net/{devices[0]}/mtu").read_text()) if devices else 1500


def create(checkout: Checkout) -> str:
    """Create the bridge and its rules; return its network. Raises ToolchainError."""
    bridge = name(checkout)
    network = subnet(checkout)
    if network is None:
        free = _free(checkout)
        remove(checkout)  # a bridge without an address
        output(["ip", "link", "add", bridge, "type", "bridge"])
        output(["ip", "address", "add", f"{free[1]}/{free.prefixlen}", "broadcast", str(free[-1]), "dev", bridge])
        network = str(free)
    # A fixed hardware address. Without one, the bridge has the lowest of its containers': when that container ends, the
    # others lose the network until they learn the new one, after some 40 s.
    address = ipaddress.IPv4Network(network)[1].packed.hex(":")
    output(["ip", "link", "set", bridge, "address", f"02:42:{address}", "up"])
    for rule in _rules(checkout, network):
        try:
            _iptables("-C", *rule)
        except ToolchainError:
            _iptables("-I", *rule)
    return network


def remove(checkout: Checkout) -> None:
    """Remove the bridge and its rules, if they exist."""
    network = subnet(checkout)
    if network is not None:
        for rule in _rules(checkout, network):
            try:
                _iptables("-D", *rule)
            except ToolchainError:
                continue  # it was not there
    if Path(f"/sys/class/net/{name(checkout)}").exists():
        output(["ip", "link", "delete", name(checkout)])
