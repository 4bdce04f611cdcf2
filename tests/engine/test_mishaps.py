"""What goes wrong in real life: one clear line, nothing lost, and the next ``up`` finishes the job."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.project import OFFICIAL, Project, wait_for
from tests.fakes.broken_connections import Cutting
from tests.fakes.loopback import run_server
from tests.helpers.free_port import free_port
from tests.helpers.needs import mounting
from tests.helpers.own_world import login_as

BASE = "debian:bookworm-slim"


def slow(project: Project, seconds: int) -> None:
    """Make the image one whose build takes a while in a step that can be seen among the machine's processes."""
    project.configure(base=BASE)
    project.write(
        "dockerfiles/link0/Dockerfile",
        f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nRUN echo {project.path} && sleep {seconds}\n",
    )


def sleeping(seconds: int) -> bool:
    return subprocess.run(["pgrep", "-fx", f"sleep {seconds}"], capture_output=True, check=False).returncode == 0


def assert_clear(output: str) -> None:
    assert "Traceback" not in output, output
    assert "panic" not in output, output


def test_second_up_at_once_is_refused_and_first_finishes(project: Project) -> None:
    slow(project, 8)
    first = project.start("up", "-s", "t", "--yes", "--skip-preview")
    wait_for(lambda: sleeping(8))
    second = project.up(check=False)
    assert second.returncode != 0
    assert "the stack is currently locked by 1 lock(s)" in second.output
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, out + err
    assert project.outputs()["images"]["link0"]["digest"]


@pytest.mark.skipif(OFFICIAL, reason="it builds on: tests/provider/test_pulumi.py")
def test_ctrl_c_ends_the_build_and_leaves_no_lock(project: Project) -> None:
    slow(project, 314)
    running = project.start("up", "-s", "t", "--yes", "--skip-preview")
    wait_for(lambda: sleeping(314))
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode != 0
    assert_clear(out + err)
    wait_for(lambda: not sleeping(314), 30)
    slow(project, 0)
    project.up()


def test_killed_up_advises_unlock_and_next_up_finishes(project: Project) -> None:
    slow(project, 315)
    running = project.start("up", "-s", "t", "--yes", "--skip-preview")
    wait_for(lambda: sleeping(315))
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    wait_for(lambda: not sleeping(315), 60)
    slow(project, 0)
    locked = project.up(check=False)
    assert locked.returncode != 0
    assert "pulumi cancel" in locked.output
    project.pulumi("cancel", "-s", "t", "--yes")
    project.up()


def test_docker_not_running_is_one_line(project: Project, tmp_path: Path) -> None:
    failed = project.up(check=False, DOCKER_HOST=f"unix://{tmp_path}/no.sock")
    assert failed.returncode != 0
    assert_clear(failed.output)
    assert re.search(r"error: .*docker daemon", failed.output, re.IGNORECASE), failed.output
    project.up()


def test_registry_lost_during_push_is_recovered_from(project: Project) -> None:
    project.write("dockerfiles/link0/file.txt", os.urandom(4_000_000).hex())
    with run_server(Cutting(project.registry, 1_000_000)) as way:
        login_as(way.address, project.registry)
        project.configure(registry={"kind": "local", "address": way.address, "path": project.path})
        started = time.monotonic()
        failed = project.up(check=False)
        assert failed.returncode != 0
        assert_clear(failed.output)
        assert way.address in failed.output
        assert way.sent > 1_000_000
        assert time.monotonic() - started < 240
        way.limit = None
        project.up()
        ref = project.outputs()["images"]["link0"]["ref"]
    assert project.manifest(ref)


@pytest.fixture
def full_registry(tmp_path: Path) -> Iterator[str]:
    """A real registry whose disk is 1 MiB, in a mount namespace of its own."""
    port = free_port()
    store, config = tmp_path / "store", tmp_path / "config.yml"
    store.mkdir()
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {store}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
    )
    mount = f"mount -t tmpfs -o size=1m tmpfs {store} && exec docker-registry serve {config}"
    process = subprocess.Popen([*mounting(), "sh", "-c", mount], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), 20)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_full_disk_is_one_line_and_loses_nothing(project: Project, full_registry: str) -> None:
    project.write("dockerfiles/link0/file.txt", os.urandom(4_000_000).hex())
    project.configure(registry={"kind": "local", "address": full_registry, "path": project.path})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert_clear(failed.output)
    assert full_registry in failed.output
    project.configure()
    project.up()
    assert project.manifest(project.outputs()["images"]["link0"]["ref"])
