#!/usr/bin/env python3
"""infiniband.py [LOG...]: fail unless each process in NCCL's log says that its traffic goes over InfiniBand.

Reads the files, or standard input, as NCCL writes them with NCCL_DEBUG=INFO; what else is in them does not matter. NCCL
that finds no InfiniBand device falls back to TCP and succeeds, many times slower. With SHARP asked for
(NCCL_COLLNET_ENABLE=1 in the environment), each process must have channels through the switches besides.

What the lines look like: NCCL's src/plugin/net.cc and src/transport/net.cc ("Using network", "via NET/"), src/init.cc
("collnet channels"). The network is called IB, and IBext with a number behind where HPC-X's plugin serves it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"(?P<process>[\w.-]+:\d+):\d+ \[-?\d+\] .*?NCCL (?:INFO|WARN) (?P<text>.*)")
_NETWORK = re.compile(r"Using network (?P<name>.+?)\s*$")
_DEVICES = re.compile(r"NET/IB : Using (?P<devices>.+?)(?:; OOB|$)")
_CHANNEL = re.compile(r"via NET/(?P<name>[^/]+)/")
_COLLNET = re.compile(r"(?P<count>\d+) collnet channels")
_INFINIBAND = re.compile(r"IB(?:ext(?:_v\d+)?)?")


@dataclass
class InfinibandLog:
    """What one process logged; sets, as it says most things once for each communicator."""

    networks: set[str] = field(default_factory=set)
    ethernet: str = ""
    collnet: int = 0

    def add(self, text: str) -> None:
        """Take in one line of the log."""
        for pattern in (_NETWORK, _CHANNEL):
            if match := pattern.search(text):
                self.networks.add(match["name"])
        if (match := _DEVICES.search(text)) and not re.search(r":\d+/IB\b", match["devices"]):
            self.ethernet = match["devices"]
        if match := _COLLNET.search(text):
            self.collnet = max(self.collnet, int(match["count"]))

    def fault(self, *, sharp: bool) -> str | None:
        """Say why this process does not use InfiniBand, or SHARP if that was asked for; None if it does."""
        others = sorted(name for name in self.networks if not _INFINIBAND.fullmatch(name))
        if others:
            return f"uses the network {', '.join(others)}, not InfiniBand"
        if self.ethernet:  # NCCL calls it IB all the same
            return f"uses {self.ethernet}, which is Ethernet (RoCE), not InfiniBand"
        if not self.networks:
            return "does not say which network it uses"
        return "has no channel through the switches: SHARP is not in use" if sharp and not self.collnet else None


def read(lines: Iterable[str]) -> dict[str, InfinibandLog]:
    """Return the processes in a log by host and number."""
    processes: dict[str, InfinibandLog] = {}
    for line in lines:
        if match := _LINE.search(line):
            processes.setdefault(match["process"], InfinibandLog()).add(match["text"])
    return processes


def networks(lines: Iterable[str]) -> list[str]:
    """Return the names of the networks that the processes in a log use."""
    return sorted(set().union(*(process.networks for process in read(lines).values())))


def verdict(lines: Iterable[str], *, sharp: bool) -> tuple[bool, list[str]]:
    """Return whether all traffic goes over InfiniBand, and a line for each process that says why not, or how."""
    processes = read(lines)
    if not processes:
        return False, ["there is no line of NCCL's; was it run with NCCL_DEBUG=INFO?"]
    faults = [f"{name} {fault}" for name, process in processes.items() if (fault := process.fault(sharp=sharp))]
    if faults:
        return False, faults
    return True, [f"{name}: {', '.join(sorted(process.networks))}" for name, process in processes.items()]


def main() -> None:
    """Judge the files named on the command line, or standard input."""
    files = sys.argv[1:]
    lines = (
        [line for file in files for line in Path(file).read_text(errors="replace").splitlines()] if files else sys.stdin
    )
    good, report = verdict(lines, sharp=os.environ.get("NCCL_COLLNET_ENABLE") == "1")
    print("\n".join(report), file=sys.stdout if good else sys.stderr)
    sys.exit(not good)


if __name__ == "__main__":
    main()
