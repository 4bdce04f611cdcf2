"""A loopback port for a server of a test that starts later, or stops and starts again."""

import random
import socket
from pathlib import Path


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel gives to outgoing connections.

    One of those may be taken by any process before the server listens.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(10000, end), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no free port in 100 between 10000 and {end}")
