"""An engine of a pool behind a real ssh server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.project import OFFICIAL, Project
from tests.engine.test_checks import CHECK, DOCKERFILE, PASSING
from tests.fakes.ssh_engine import SshEngine
from tests.helpers.elf_writer import LOADER, elf
from tests.images.engine import base_image

pytestmark = pytest.mark.slow

AMD64 = "linux/amd64"


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
    assert "/opt/program: missing libgone.so.1: not in the image" in failed.output
    assert "Traceback" not in failed.output

    # What is left to do is the inspection: it reaches the image, which this machine's engine is not asked for.
    row = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
    project.configure(**keys, inspection={"exceptions": [row]})
    logins = far.logins
    project.up(DOCKER_HOST="unix:///no/such.sock")
    inspected = far.logins - logins
    project.up(DOCKER_HOST="unix:///no/such.sock")
    assert far.logins - logins - inspected < inspected


@pytest.mark.skipif(OFFICIAL, reason="it asks the engine at a preview")
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
    assert f"slipway:engines.{AMD64}: no engine answers: {address}: " in refused.output
    assert "Permission denied (publickey" in refused.output
    assert "Traceback" not in refused.output

    far.stop()
    project.configure(
        base=base_image(), length=3, word="two", engines={AMD64: [far.address, os.environ["DOCKER_HOST"]]}
    )
    output = project.up().output
    assert f"slipway:engines.{AMD64}: {address}: " in output
    assert "others of the list take its images" in output
