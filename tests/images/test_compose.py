"""A stack's compose file with Docker Compose: Debian's classic one, and the plugin."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cli import compose
from cli.main import main
from tests.images.engine import client, docker
from toolchain.checkout import Checkout
from toolchain.machine import apt, golang
from toolchain.machine.steps import step

USER = os.getuid() or 1234
"""The user of the containers: never root, also if the tests run as root."""


def installed() -> list[str]:
    """Return this machine's Compose, else Debian's classic one, installed."""
    docker_ = [shutil.which("docker") or "docker", "compose"]
    if subprocess.run([*docker_, "version"], capture_output=True, check=False).returncode == 0:
        return docker_
    if not shutil.which("docker-compose"):
        apt.install(Checkout.here(), "docker-compose")
    return ["docker-compose"]


def plugin() -> list[str]:
    """Return Docker Compose V2, built from its Go module the first time."""
    checkout = Checkout.here()
    target = checkout.cache / f"compose-{golang.required('compose', 'github.com/docker/compose/v2')}"
    if not target.exists():
        with step("Building Docker Compose (once)"), golang.caches(checkout):
            golang.build(checkout, "compose", "github.com/docker/compose/v2/cmd", target)
    return [str(target)]


PROGRAMS = [pytest.param(installed, id="installed"), pytest.param(plugin, id="plugin", marks=pytest.mark.slow)]


class Project:
    """A project's folder, in which Compose is run."""

    def __init__(self, folder: Path, program: list[str]) -> None:
        self.folder = folder
        self.program = program
        # The classic one builds with the docker client, the plugin with its own BuildKit.
        path = f"{Path(client()).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "COMPOSE_DOCKER_CLI_BUILD": "1", "DOCKER_BUILDKIT": "1"}

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self.program, *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout


@pytest.fixture
def project(program: Callable[[], list[str]], tmp_path: Path) -> Iterator[Project]:
    folder = tmp_path / f"project-{uuid.uuid4().hex[:8]}"  # Compose names containers by it
    folder.mkdir()
    compose_project = Project(folder, program())
    yield compose_project
    compose_project.run("down", "--timeout", "1")
    docker("image", "rm", "--force", IMAGE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_compose_file_of_stack_is_accepted(project: Project) -> None:
    for stack in ("local", "base-cu132", "efa-2310"):
        assert main(["compose", stack, "--project", str(project.folder), "--force"]) == 0
        output = project.run("config")
        assert "driver: nvidia" in output
        assert "host" not in output.replace("create_host_path", "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_compose_in_linked_folder_finds_its_build_context(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "deep" / "er" / project.folder.name
    link.parent.mkdir(parents=True)
    link.symlink_to(project.folder)
    root = tmp_path / "it's $HOME here"
    (root / "dockerfiles").mkdir(parents=True)
    monkeypatch.setattr(compose, "ROOT", root)
    monkeypatch.setenv("PWD", str(link))
    assert main(["compose", "local", "--project", str(link), "--force"]) == 0
    read = yaml.safe_load(Project(link, project.program).run("config"))
    assert read["services"]["train"]["build"]["context"].replace("$$", "$") == str(root / "dockerfiles")


IMAGE = "slipway-test/compose"


def up(project: Project, build: str, *options: str) -> None:
    """Start `train` of the stack `local` as another user; `build` replaces the image's `build` settings."""
    assert main(["compose", "local", "--project", str(project.folder), *options]) == 0
    settings = project.folder / ".env"
    settings.write_text(settings.read_text().replace("ID=0\n", f"ID={USER}\n"))
    reset = "" if options else "\n    deploy: !reset null"  # this machine has no GPU
    (project.folder / "docker-compose.override.yaml").write_text(
        f"services:\n  train:\n    image: {IMAGE}\n    build: {build}{reset}\n"
    )
    os.chown(project.folder, USER, os.getgid() or USER)
    project.run("up", "--detach", "--build", "train")


def inside(project: Project, expression: str) -> str:
    """Evaluate a Python expression in the container; return its value, read from a file in the project."""
    project.run("exec", "-T", "train", "python3", "-c", f"open('value', 'w').write(str({expression}))")
    written = project.folder / "value"
    assert written.stat().st_uid == USER
    return written.read_text()


def works(project: Project) -> None:
    assert inside(project, "__import__('os').getcwd()") == "/workspace"
    project.run("exec", "-T", "train", "sh", "-c", "touch $HOME/cache")
    (container,) = json.loads(docker("inspect", project.run("ps", "-q", "train").strip()).stdout)
    host = container["HostConfig"]
    assert host["NetworkMode"] != "host"
    assert host["ShmSize"] == 8 << 30
    assert host["Init"] is True


@pytest.mark.parametrize("program", [installed])
def test_train_service_works_in_project_as_its_user(project: Project) -> None:
    up(project, "{target: python}", "--cpu")
    works(project)


@pytest.mark.slow
@pytest.mark.parametrize("program", [plugin])
def test_train_service_without_gpus_builds_the_whole_image(project: Project) -> None:
    up(project, "{}")
    works(project)
    assert (
        inside(project, "(__import__('torch').ones(2, 3) @ __import__('torch').ones(3, 1)).tolist()")
        == "[[3.0], [3.0]]"
    )
