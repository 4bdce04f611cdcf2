"""A Docker engine that has no images and no cache, and that may be limited to one core. Root alone starts one."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.services import MeasuredEngine
from containers.errors import SlipwayError
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.parts import docker_engine

_CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class PrivateEngine:
    """A running engine: its address, the process that all of it descends from, and what it does."""

    host: str
    pid: int
    engine: MeasuredEngine


def refusal(engines: int) -> str:
    """Return why so many engines, of a core each if they are several, cannot be started here; empty if they can."""
    if not apt.is_root():
        return "root alone starts Docker engines"
    cores = len(os.sched_getaffinity(0))
    return f"{engines} engines need a core each, and there is {cores}" if engines > cores else ""


@contextmanager
def started(folder: Path, core: int | None = None) -> Iterator[PrivateEngine]:
    """Start an engine whose images are in a folder; with ``core``, it and its builds run on that core alone.

    Raises:
        ToolchainError: the engine does not start.
    """
    checkout = Checkout(folder)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(shutil.rmtree, checkout.run, ignore_errors=True)  # outside the folder if its path is long
        cpuset = stack.enter_context(limited_to(core, f"slipway-{checkout.id}")) if core is not None else Cpuset()
        stack.callback(docker_engine.stop, checkout)
        host = docker_engine.start_own(checkout, under=cpuset.under, options=cpuset.options)
        pid = docker_engine.daemon(checkout).pid()
        if pid is None:
            raise SlipwayError(f"the Docker engine at {host} ended as soon as it was started")
        yield PrivateEngine(host, pid, MeasuredEngine(checkout, host))


@dataclass(frozen=True)
class Cpuset:
    """How an engine is started below a cgroup: a command that starts it, and options of dockerd for its containers."""

    under: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@contextmanager
def limited_to(core: int, name: str, cgroups: Path = _CGROUPS) -> Iterator[Cpuset]:
    """Create a cgroup that has one core, and remove it when the block ends.

    An affinity, as of `taskset`, would not do: runc 1.2 and newer gives a container all cores of its cgroup.
    """
    first = cgroups / "cpuset"
    version_1 = first.is_dir()  # cgroups(7); in version 2 all controllers share one hierarchy
    group = (first if version_1 else cgroups) / name
    # In version 2, a cgroup has processes or children.
    members, parent = (group, name) if version_1 else (group / "engine", f"{name}/builds")
    try:
        if not version_1:
            (cgroups / "cgroup.subtree_control").write_text("+cpuset")
        members.mkdir(parents=True)
        (group / "cpuset.cpus").write_text(str(core))
        if version_1:  # it has no default there (cpuset(7))
            (group / "cpuset.mems").write_text((first / "cpuset.mems").read_text())
        join = f'echo $$ > {shlex.quote(str(members / "cgroup.procs"))} && exec "$@"'
        yield Cpuset(
            ("sh", "-c", join, "sh"), ("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{parent}")
        )
    finally:
        for top in {group, *cgroups.glob(f"*/{name}")}:  # runc makes one for each controller of version 1
            for folder, _, _ in os.walk(top, topdown=False):
                Path(folder).rmdir()
