"""Engines of a pool: one that goes away in the middle of a build, and one behind a real ssh server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from components.engines.pool import Pool
from tests.engine.project import Project, wait_for
from tests.engine.test_checks import CHECK, DOCKERFILE, PASSING
from tests.fakes.docker_relay import Relay
from tests.fakes.ssh_engine import SshEngine
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.empty_engine import started
from tests.images.engine import base_image

pytestmark = pytest.mark.slow

AMD64 = "linux/amd64"
SLOW = """ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
RUN --mount=type=secret,id=netrc,target=/dev/netrc,required=true \\
    grep -q hunter2 /dev/netrc && echo {mark} && sleep 6.{mark} && touch /done
"""


def runs(mark: str) -> bool:
    """Return whether a step of a build sleeps at present."""
    words = b"sleep\0" + f"6.{mark}".encode() + b"\0"
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if process.read_bytes() == words:
                return True
    return False


@pytest.mark.skipif(os.environ.get("SLIPWAY_DOCKER_PROVIDER") == "official", reason="it opens no session again")
def test_build_moves_from_an_engine_that_goes(project: Project) -> None:
    mark = str(uuid.uuid4().int)[:8]
    # Two engines: one that has the session of a build takes no second one of its kind.
    with started() as other, Relay(os.environ["DOCKER_HOST"]) as first, Relay(other) as second:
        pool = [first.host, second.host]
        project.write("dockerfiles/link0/Dockerfile", SLOW.format(mark=mark))
        project.configure(
            base=base_image(),
            engines={AMD64: pool},
            mirrors={"pythonIndex": "https://pypi.example.com/simple"},
            buildSecrets={"pypi.example.com": {"username": "ci", "variable": "INDEX_PASSWORD"}},
        )
        gone, left = sorted((first, second), key=lambda relay: relay.host != Pool(AMD64, pool).order("link0")[0])
        update = project.start("up", "-s", "t", "--yes", "--skip-preview", INDEX_PASSWORD="hunter2")
        wait_for(lambda: runs(mark))
        builds = left.builds
        gone.__exit__(None, None, None)
        output = "".join(update.communicate(timeout=120))
    assert update.returncode == 0, output
    assert f"{gone.host}: the connection ended in the middle of a build; others of the list take its images" in output
    assert left.builds > builds
    assert project.published("link0")
    assert "hunter2" not in output


@pytest.fixture
def far(tmp_path: Path, project: Project) -> Iterator[SshEngine]:
    """An engine behind ssh, which the project's ssh has a key of."""
    with SshEngine(tmp_path / "far", os.environ["DOCKER_HOST"]) as far:
        project.environment["PATH"] = f"{far.programs}{os.pathsep}{project.environment['PATH']}"
        yield far


def test_unpushed_image_is_inspected_behind_ssh(project: Project, far: SshEngine) -> None:
    project.write("dockerfiles/link0/Dockerfile", f"{DOCKERFILE}COPY --chmod=755 link0/program /opt/program\n")
    project.write(CHECK, PASSING)
    (project.root / "dockerfiles/link0/program").write_bytes(elf(needed=["libgone.so.1"], interpreter=LOADER))
    keys: dict[str, Any] = {"base": base_image(), "publish": False, "engines": {AMD64: far.address}}
    project.configure(**keys)
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "/opt/program: misses libgone.so.1: not in the image" in failed.output
    assert "Traceback" not in failed.output

    # What is left to do is the inspection: it reaches the image, which this machine's engine is not asked for.
    row = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
    project.configure(**keys, inspection={"exceptions": [row]})
    logins = far.logins
    project.up(DOCKER_HOST="unix:///no/such.sock")
    inspected = far.logins - logins
    project.up(DOCKER_HOST="unix:///no/such.sock")
    assert far.logins - logins - inspected < inspected


def test_engine_behind_ssh_builds_and_may_go(project: Project, far: SshEngine) -> None:
    project.write(
        "dockerfiles/link0/Dockerfile", f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nRUN echo {uuid.uuid4()} >/made\n"
    )
    project.configure(base=base_image(), length=3, engines={AMD64: far.address})
    project.up()
    assert far.logins > 3
    logins = far.logins
    assert project.published("link2")
    project.preview("--expect-no-changes")
    assert far.logins == logins

    # A key that the host does not know, a host that is down: one line, of what ssh says, and no question of ssh's.
    project.configure(base=base_image(), length=3, word="two", engines={AMD64: far.address})
    address = far.address.replace("root@", "***@")
    far.forget_key()
    refused = project.up(check=False)
    assert refused.returncode != 0
    assert f"slipway:engines.{AMD64}: no engine answers: the Docker engine at {address}: " in refused.output
    assert "Permission denied (publickey" in refused.output
    assert "Traceback" not in refused.output

    far.stop()
    project.configure(
        base=base_image(), length=3, word="two", engines={AMD64: [far.address, os.environ["DOCKER_HOST"]]}
    )
    output = project.up().output
    assert f"slipway:engines.{AMD64}: the Docker engine at {address}: " in output
    assert "others of the list take its images" in output
