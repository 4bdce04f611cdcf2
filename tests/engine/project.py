"""A small Slipway project in a folder of its own, run by the real Pulumi CLI against the real engine and registry."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from copy import copy
from pathlib import Path
from typing import Any

import requests

from containers.registry.client import IMAGES, INDEXES
from tests.helpers import program_copy, pulumi_cli, registry_api

FLAVOR = '''
"""A chain of small images, for tests: what a new flavor takes is this module, a folder and a YAML."""

from typing import Literal

from pydantic import Field

from stacks.config.stack_config import StackConfig
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix


class Config(StackConfig):
    flavor: Literal["chain"] = "chain"
    length: int = Field(1, ge=1, le=500)
    word: str = "one"
    base: str = "scratch"


def images(config):
    return [
        ImageSpec(
            name=f"link{number}",
            dockerfile=f"link{number}/Dockerfile",
            platform=config.platform,
            args={"WORD": config.word},
            parents={"BASE_IMAGE": Sibling(image=f"link{number - 1}") if number else Outside(reference=config.base)},
            description="a link",
            licenses="MIT",
            suffix=Suffix(variant="chain"),
        )
        for number in range(config.length)
    ]
'''

DOCKERFILE = """ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
ARG WORD
COPY link{number}/file.txt /link{number}-${{WORD}}.txt
"""


MANIFESTS = ", ".join((*IMAGES, *INDEXES))
OFFICIAL = os.environ.get("SLIPWAY_DOCKER_PROVIDER") == "official"
"""Whether images are built by the official docker provider: docs/contributing.md, "Two docker providers"."""


class Run(subprocess.CompletedProcess[str]):
    """A finished command; ``output`` is everything it printed, without terminal codes."""

    @property
    def output(self) -> str:
        return pulumi_cli.plain(self.stdout + self.stderr)


class Project:
    """The project's folder, its stack ``t``, and Pulumi on it, which may run for some seconds each time."""

    def __init__(self, root: Path, seconds: float = 300) -> None:
        self.root, self.seconds = root, seconds
        self.path = f"test-{uuid.uuid4().hex[:8]}"
        self.registry = os.environ["SLIPWAY_REGISTRY"]
        self.environment = pulumi_cli.environment(root)
        program_copy.write(root)
        pulumi_cli.write_pip(root)
        self.write("stacks/flavors/chain.py", FLAVOR)
        for number in range(3):
            self.write(f"dockerfiles/link{number}/Dockerfile", DOCKERFILE.format(number=number))
            self.write(
                f"dockerfiles/link{number}/Dockerfile.dockerignore", f"*\n!link{number}\nlink{number}/README.md\n"
            )
            self.write(f"dockerfiles/link{number}/file.txt", f"content {number} {self.path}\n")
        self.configure()

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def configure(self, **values: Any) -> None:
        """Write the stack's YAML; what Pulumi added to it stays."""
        path = self.root / "stacks/Pulumi.t.yaml"
        kept = [line for line in path.read_text().splitlines() if "encryptionsalt" in line] if path.exists() else []
        registry = {"kind": "local", "address": self.registry, "path": self.path}
        keys = {"flavor": "chain", "registry": registry, **values}
        lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in keys.items()]
        self.write("stacks/Pulumi.t.yaml", "\n".join(["config:", *lines, *kept]) + "\n")

    def add_stack(self) -> None:
        """Add the empty stack `t`, as `pulumi stack init` does."""
        pulumi_cli.add_stack(self.root, self.root / "stacks/Pulumi.t.yaml")

    def copy(self, root: Path) -> Project:
        """Return a copy in its present state, in another folder; its images have the same names."""
        shutil.copytree(self.root, root, symlinks=True, copy_function=program_copy.copy_file)
        other = copy(self)
        other.root, other.environment = root, {**self.environment, "PULUMI_BACKEND_URL": root.as_uri()}
        return other

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start Pulumi in a process group of its own."""
        return subprocess.Popen(
            ["pulumi", *arguments, "--non-interactive"],
            cwd=self.root,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def pulumi(self, *arguments: str, check: bool = True, **environment: str) -> Run:
        """Run Pulumi; by default it must succeed."""
        process = self.start(*arguments, **environment)
        try:
            out, err = process.communicate(timeout=self.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        done = Run(process.args, process.returncode, out, err)
        assert not check or done.returncode == 0, done.output
        return done

    def up(self, *, check: bool = True, **environment: str) -> Run:
        """Run ``pulumi up``."""
        return self.pulumi("up", "-s", "t", "--yes", "--skip-preview", check=check, **environment)

    def refresh(self, **environment: str) -> Run:
        """Run ``pulumi refresh``."""
        return self.pulumi("refresh", "-s", "t", "--yes", "--skip-preview", check=True, **environment)

    def preview(self, *options: str, check: bool = True, **environment: str) -> Run:
        """Run ``pulumi preview``."""
        return self.pulumi("preview", "-s", "t", *options, check=check, **environment)

    def stacks(self, *words: str, code: int = 0, **environment: str) -> str:
        """Run ``python -m stacks``; return what it printed, or, where it is to fail, what it said of why."""
        done = subprocess.run(
            [sys.executable, "-m", "stacks", *words],
            cwd=self.root,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        outputs: dict[str, Any] = json.loads(self.pulumi("stack", "output", "-s", "t", "--json").stdout)
        return outputs

    def built(self) -> list[str]:
        """Return the names under which the engine has the stack's images and their checks."""
        return pulumi_cli.image_names(self.pulumi("stack", "export", "-s", "t").stdout)

    def fetch(self, path: str) -> bytes:
        """Fetch a path of the registry's API."""
        return registry_api.fetch(f"{self.registry}/{path}", MANIFESTS)

    def manifest(self, ref: str) -> bytes:
        """Fetch the manifest of ``host/path@digest``."""
        name, _, digest = ref.partition("@")
        return self.fetch(f"{name.partition('/')[2]}/manifests/{digest}")

    def config_of(self, ref: str) -> dict[str, Any]:
        """Fetch the image configuration of ``host/path@digest``."""
        name = ref.partition("@")[0].partition("/")[2]
        digest = json.loads(self.manifest(ref))["config"]["digest"]
        config: dict[str, Any] = json.loads(self.fetch(f"{name}/blobs/{digest}"))
        return config

    def published(self, image: str) -> bool:
        """Say whether the registry holds anything under an image's name."""
        try:
            return bool(json.loads(self.fetch(f"{self.path}/{image}/tags/list"))["tags"])
        except requests.HTTPError as error:
            assert error.response.status_code == 404
            return False


def wait_for(condition: Any, seconds: float = 60) -> Any:
    """Return the first true result of ``condition``, asked ten times a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"not true within {seconds} s: {condition}")
