"""What NCCL's traffic between nodes can go over in an image: a network plugin, InfiniBand, or sockets.

NCCL takes the plugin if it finds a device for it, else its own network of InfiniBand, which opens libibverbs by name,
else sockets (NVIDIA/nccl v2.28.9-1, src/plugin/net.cc:323-335, :351).
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from containers.image.binaries.plugins import Plugin

_NCCL: Final = re.compile(r"libnccl\.so\.\d+")
_NETWORK: Final = "libnccl-net"
_VERBS: Final = "libibverbs.so.1"
_OTHERS: Final = ("tuner", "profiler", "gin", "rma", "env")
"""The other kinds of plugins, as their files are called: ``libnccl-tuner.so``."""
_OF_GLIBC: Final = re.compile(r"(?:ld-linux-[\w-]+|lib(?:c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so\.\d+")
"""What nearly every library needs."""


def rows(plugins: Sequence[Plugin]) -> Iterator[tuple[str, str]]:
    """Yield a name and a value for each kind of plugin, of those that NCCL opens; nothing without NCCL."""
    by_nccl: defaultdict[str, list[Plugin]] = defaultdict(list)
    for plugin in plugins:
        if _NCCL.match(posixpath.basename(plugin.opener)):
            by_nccl[plugin.opener].append(plugin)
    networks: defaultdict[str, list[str]] = defaultdict(list)
    for opener, opened in by_nccl.items():
        networks[_networks(opened)].append(opener)
    for value, openers in networks.items():
        yield "NCCL network", f"{value}; for {', '.join(openers)}"
    for kind in _OTHERS:
        of_kind = {plugin.file: plugin for plugin in plugins if plugin.name.startswith(f"libnccl-{kind}")}
        if files := [described(plugin) for file, plugin in of_kind.items() if file]:
            yield f"NCCL {kind}", "; ".join(files)


def described(plugin: Plugin) -> str:
    """Return a plugin's file and what it needs beside the C library, as words."""
    needed = ((name, path) for name, path in plugin.needs.items() if not _OF_GLIBC.fullmatch(name))
    needs = ", ".join(f"{name} ({path or 'not found'})" for name, path in needed)
    state = "" if plugin.loads else ", which does not load"
    return f"{plugin.file}{state}" + (f", needs {needs}" if needs else "")


def _networks(opened: Sequence[Plugin]) -> str:
    """Return the networks in the order in which NCCL tries them."""
    networks = [described(plugin) for plugin in opened if plugin.name.startswith(_NETWORK) and plugin.file]
    verbs = next((plugin.file for plugin in opened if plugin.name == _VERBS), "")
    own = [f"InfiniBand by {verbs}", "sockets"] if verbs else [f"sockets: InfiniBand needs {_VERBS}"]
    return "; else ".join([*networks, *own])
