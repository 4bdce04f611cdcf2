"""The port of the registry that we start, and whether ours listens there."""

import socket
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine.daemon import Daemon
from toolchain.machine.files import write

LOOPBACK: Final = "127.0.0.1"


def folder(checkout: Checkout) -> Path:
    """Return the folder of the registry's files."""
    return checkout.state / "registry"


def daemon(checkout: Checkout) -> Daemon:
    """Return our registry, running or not."""
    config = folder(checkout) / "config.yml"
    return Daemon("registry", config.with_name("pid"), checkout.logs / "registry.log", mark=str(config))


def ports(checkout: Checkout) -> list[int]:
    """Return all ports that were ever ours, the present one last; what has another now is another user's."""
    try:
        return [int(line) for line in (folder(checkout) / "port").read_text().split()]
    except (FileNotFoundError, ValueError):
        return []


def keep(checkout: Checkout, port: int) -> None:
    """Make a port the present one."""
    former = [each for each in ports(checkout) if each != port]
    write(folder(checkout) / "port", "".join(f"{each}\n" for each in (*former, port)))


def address(port: int) -> str:
    """Return a port's `host:port`."""
    return f"{LOOPBACK}:{port}"


def is_ours(checkout: Checkout, port: int) -> bool:
    """Return whether our process listens on a port, and not another checkout's or another user's."""
    pid = daemon(checkout).pid()
    local = f"{int.from_bytes(socket.inet_aton(LOOPBACK), 'little'):08X}:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    sockets = {f"socket:[{fields[9]}]" for fields in lines if fields[1] == local and fields[3] == "0A"}
    try:
        return any(str(file.readlink()) in sockets for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
