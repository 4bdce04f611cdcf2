"""The provider under the real Pulumi engine: a program with images, its previews, its state."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.helpers import pulumi_cli
from tests.provider.conftest import PASSWORD, USER, Registry, write
from tests.provider.plugin import CHECKOUT, SELECTED, command
from tests.provider.test_failures import ended, processes, wait_until

PROVIDERS = ["embedded"] if SELECTED == "embedded" else ["embedded", "official"]
"""Those that are here: where the official one is selected, the two are tried with each other's state."""

PROGRAM = """
import os, pulumi, pulumi_docker as docker

config = pulumi.Config()
name = os.environ["TEST_REPOSITORY"]
parent = docker.Image(
    "parent",
    image_name=f"{name}/parent:v1",
    build=docker.DockerBuildArgs(
        context="parent", platform="linux/amd64",
        args={"STEP": config.get("step") or "true", "TOKEN": config.get_secret("token") or "none"},
    ),
    registry=docker.RegistryArgs(
        server=name.partition("/")[0], username=config.require("user"), password=config.require_secret("password")
    ),
)
child = docker.Image(
    "child",
    image_name=f"{name}/child:v1",
    build=docker.DockerBuildArgs(context="child", platform="linux/amd64", args={"PARENT": parent.repo_digest}),
    registry=docker.RegistryArgs(
        server=name.partition("/")[0], username=config.require("user"), password=config.require_secret("password")
    ),
)
pulumi.export("parent", parent.repo_digest)
pulumi.export("child", child.repo_digest)
"""

FILES = {
    "Pulumi.yaml": "name: parity\nruntime: python\n",
    "__main__.py": PROGRAM,
    "parent/Dockerfile": 'FROM scratch\nCOPY sh /bin/sh\nARG STEP\nARG TOKEN\nRUN eval "$STEP"\n',
    "child/Dockerfile": "ARG PARENT\nFROM ${PARENT}\nCOPY file /file\n",
    "child/file": "x",
}


class Project:
    """A program in a separate folder, with a separate state."""

    def __init__(self, folder: Path, registry: Registry, shell: Path) -> None:
        self.folder = write(folder / "program", FILES)
        (self.folder / "parent/sh").write_bytes(shell.read_bytes())
        (self.folder / "parent/sh").chmod(0o755)
        for part in ("state", "home", "docker", "embedded"):
            (folder / part).mkdir()
        launcher = folder / "embedded/pulumi-resource-docker"
        embedded = shlex.join(command("embedded"))
        launcher.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(CHECKOUT))} exec {embedded} "$@"\n')
        launcher.chmod(0o755)
        self.plugins = {"embedded": launcher.parent}
        if SELECTED == "official":
            self.plugins["official"] = Path(command("official")[0]).parent
        self.environment = pulumi_cli.environment(
            folder / "state",
            PULUMI_HOME=str(folder / "home"),
            PULUMI_SKIP_UPDATE_CHECK="true",
            PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION="true",
            DOCKER_CONFIG=str(folder / "docker"),
            TEST_REPOSITORY=f"{registry.address}/{secrets.token_hex(4)}",
        )
        self.state = folder / "state"
        self.run("stack", "init", "test")
        self.configure(user=USER, password=PASSWORD)

    def configure(self, **values: str) -> None:
        for key, value in values.items():
            secret = ["--secret"] if key in {"password", "token"} else []
            self.run("config", "set", *secret, key, "--", value)

    def start(self, *arguments: str, provider: str = SELECTED) -> subprocess.Popen[str]:
        # the venv's bin stays first on PATH: the language host takes its Python from there
        path = f"{Path(sys.executable).parent}:{self.plugins[provider]}:{self.environment['PATH']}"
        return subprocess.Popen(
            ["pulumi", "--non-interactive", *arguments],
            cwd=self.folder,
            env={**self.environment, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, fails: bool = False, provider: str = SELECTED) -> str:
        process = self.start(*arguments, provider=provider)
        try:
            output, _ = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert (process.returncode != 0) == fails, output
        return pulumi_cli.plain(output)

    def up(self, **options: Any) -> str:
        return self.run("up", "--yes", "--skip-preview", **options)

    def outputs(self) -> dict[str, str]:
        outputs: dict[str, str] = json.loads(self.run("stack", "output", "--json"))
        return outputs


@pytest.fixture
def project(tmp_path: Path, locked_registry: Registry, shell: Path, engine: docker.DockerClient) -> Iterator[Project]:
    running = Project(tmp_path, locked_registry, shell)
    yield running
    # Not `images.list`, which asks again for each image: another test may have removed it.
    for image in engine.api.images():
        for tag in image["RepoTags"] or []:
            if tag.startswith(running.environment["TEST_REPOSITORY"]):
                engine.images.remove(tag, force=True)


def test_two_images_are_created_updated_and_destroyed(project: Project) -> None:
    """Create, no change, a changed argument that reaches the child, destroy; no secret in state or display."""
    project.configure(token="hush-hush")
    output = project.up()
    first = project.outputs()
    repository = project.environment["TEST_REPOSITORY"]
    assert {key: value.partition("@")[0] for key, value in first.items()} == {
        "parent": f"{repository}/parent",
        "child": f"{repository}/child",
    }
    assert "+ 3 created" in output
    assert "3 unchanged" in project.run("preview", "--expect-no-changes")
    assert "3 unchanged" in project.up()

    project.configure(password=f"{PASSWORD} ")
    assert "3 unchanged" in project.run("preview"), "a password alone changes nothing"
    project.configure(password=PASSWORD, step="echo changed > /changed")
    output = project.run("preview", "--diff")
    assert output.count("docker:index/image:Image: (update)") == 2
    assert "~ 2 updated" in project.up()
    second = project.outputs()
    assert first["parent"] != second["parent"]
    assert first["child"] != second["child"]

    output += project.run("refresh", "--yes")
    assert "3 unchanged" in project.run("preview", "--expect-no-changes")
    state = "".join(path.read_text() for path in project.state.rglob("*.json"))
    for secret in (PASSWORD, "hush-hush"):
        assert secret not in state
        assert secret not in output
    project.run("destroy", "--yes")


def test_child_of_unbuilt_parent_previews(project: Project) -> None:
    """The argument is unknown; the preview prints the rest."""
    output = project.run("preview", "--diff")
    assert re.search(r"PARENT\s*: \[unknown\]", output)


@pytest.mark.parametrize("writer", PROVIDERS)
@pytest.mark.parametrize("reader", PROVIDERS)
def test_state_of_other_provider_previews_clean(project: Project, writer: str, reader: str) -> None:
    project.up(provider=writer)
    assert "3 unchanged" in project.run("preview", "--expect-no-changes", provider=reader)
    project.configure(step="echo changed > /changed")
    assert "~ 2 updated" in project.up(provider=reader)
    assert "3 unchanged" in project.run("preview", "--expect-no-changes", provider=writer)


def test_failing_build_keeps_earlier_images(project: Project) -> None:
    """The output names and quotes the step; earlier images stay; the next up finishes."""
    project.up()
    before = project.outputs()
    project.configure(step="echo the reason; exit 7")
    output = project.up(fails=True)
    assert "exit code: 7" in output
    if SELECTED == "embedded":
        assert "RUN eval" in output
        assert re.search(r"^\s+the reason$", output, re.MULTILINE)
    assert project.outputs() == before
    project.configure(step="echo fine > /fine")
    assert "~ 2 updated" in project.up()


def wait(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_interrupted_up_ends_build_and_unlocks_stack(project: Project) -> None:
    """Ctrl-C ends the build in the engine and unlocks the stack, and the next up builds the missing images.

    The official provider lets the build go on; there it ends with the plugin, which takes a second Ctrl-C.
    """
    marker = f"90.{secrets.randbelow(10**9):09d}"
    project.configure(step=f"sleep {marker}")
    process = project.start("up", "--yes", "--skip-preview")
    wait_until(marker)
    process.send_signal(signal.SIGINT)
    if SELECTED == "official":
        time.sleep(2)
        assert processes(marker)
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert ended(marker, 10)
    if SELECTED == "embedded":
        assert "cancelled" in output
    project.configure(step="true")
    if SELECTED == "official":
        project.run("cancel", "--yes", "test")
    assert "created" in project.up()


def test_killed_pulumi_ends_the_build(project: Project) -> None:
    """A Pulumi that is killed takes its plugin, and so the build, with it."""
    marker = f"90.{secrets.randbelow(10**9):09d}"
    project.configure(step=f"sleep {marker}")
    process = project.start("up", "--yes", "--skip-preview")
    wait_until(marker)
    process.kill()
    process.communicate()
    assert ended(marker, 15)
