#!/usr/bin/env python3
"""provider.py [LOG...]: fail unless each process in NCCL's log says that its traffic goes over EFA.

Reads the files, or standard input, as NCCL writes them with NCCL_DEBUG=INFO; what else is in them does not matter.
Each process (host and number) must have loaded the plugin aws-ofi-nccl, which must have selected the provider `efa`,
and must use that network; no channel may go over another one. NCCL that finds no plugin, or one without a device,
falls back to TCP and succeeds, many times slower.

What the lines look like: NCCL's src/plugin/net.cc and src/transport/net.cc ("Using network", "via NET/"), and
aws-ofi-nccl's src/nccl_ofi_net.c: "Using aws-ofi-nccl 1.5.0aws", later "Initializing aws-ofi-nccl 1.13.2-aws";
"Selected Provider is efa (found 4 nics)" up to 1.13, "Selected provider is efa, fabric is efa-direct (found 32 nics)"
in 1.16.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

OFI = {"Libfabric", "AWS Libfabric"}
"""What the plugin calls its network: from NCCL's interface 5 on, and before."""

_LINE = re.compile(r"(?P<process>[\w.-]+:\d+):\d+ \[-?\d+\] .*?NCCL (?:INFO|WARN) (?P<text>.*)")
_PLUGIN = re.compile(r"NET/OFI (?:Initializing|Using) (aws-ofi-nccl \S+)")
_PROVIDER = re.compile(r"NET/OFI Selected provider is (?P<name>[^ ,]+).*?\(found (?P<nics>\d+) nics\)", re.IGNORECASE)
_NETWORK = re.compile(r"Using network (?P<name>.+?)\s*$")
_CHANNEL = re.compile(r"via NET/(?P<name>[^/]+)/")
_MISSING = re.compile(r"(?:NET/Plugin ?: (?:Could not find|No plugin found)|NET/OFI (?:No eligible|Unable to find)).*")


@dataclass
class ProviderLog:
    """What one process logged; sets, as it says most things once for each communicator."""

    plugins: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    nics: set[int] = field(default_factory=set)
    networks: set[str] = field(default_factory=set)
    channels: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Take in one line of the log."""
        if match := _PLUGIN.search(text):
            self.plugins.add(match[1])
        if match := _PROVIDER.search(text):
            self.providers.add(match["name"])
            self.nics.add(int(match["nics"]))
        if match := _NETWORK.search(text):
            self.networks.add(match["name"])
        if match := _CHANNEL.search(text):
            self.channels.add(match["name"])
        if match := _MISSING.search(text):
            self.missing.append(match[0])

    def fault(self) -> str | None:
        """Say why this process does not use EFA; None if it does."""
        why = f" ({self.missing[0].strip()})" if self.missing else ""
        others = (self.networks | self.channels) - OFI
        if others:
            return f"uses the network {', '.join(sorted(others))}, not EFA{why}"
        if not self.providers:
            return f"has selected no provider{why}"
        if self.providers != {"efa"}:
            return f"has selected the provider {', '.join(sorted(self.providers))}, not efa"
        return None if self.networks else "does not say which network it uses"


def read(lines: Iterable[str]) -> dict[str, ProviderLog]:
    """Return the processes in a log by host and number."""
    processes: dict[str, ProviderLog] = {}
    for line in lines:
        if match := _LINE.search(line):
            processes.setdefault(match["process"], ProviderLog()).add(match["text"])
    return processes


def verdict(lines: Iterable[str]) -> tuple[bool, list[str]]:
    """Return whether all traffic goes over EFA, and a line for each process that says why not, or how."""
    processes = read(lines)
    if not processes:
        return False, ["there is no line of NCCL's; was it run with NCCL_DEBUG=INFO?"]
    faults = [f"{name} {fault}" for name, process in processes.items() if (fault := process.fault())]
    if faults:
        return False, faults
    return True, [
        f"{name}: {', '.join(sorted(process.plugins)) or 'plugin of unknown version'}, provider efa, "
        f"{max(process.nics)} devices"
        for name, process in processes.items()
    ]


def main() -> None:
    """Judge the files named on the command line, or standard input."""
    files = sys.argv[1:]
    lines = (
        [line for file in files for line in Path(file).read_text(errors="replace").splitlines()] if files else sys.stdin
    )
    good, report = verdict(lines)
    print("\n".join(report), file=sys.stdout if good else sys.stderr)
    sys.exit(not good)


if __name__ == "__main__":
    main()
