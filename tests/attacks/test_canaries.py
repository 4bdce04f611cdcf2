"""A whole life of a stack with a canary in each secret: every process is watched, and everything left is read."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from docker import DockerClient

from containers.child_environment import PASSWORD as KEY_PASSWORD
from containers.child_environment import WITHHELD
from tests.engine.project import Project
from tests.engine.test_signing import BASE, locked_registry, programs
from tests.fakes.vulnerability_database import write
from tests.helpers.watched_programs import PULUMI, Watched, needless
from tests.images.engine import base_image
from tests.provider.conftest import PASSWORD, USER, Registry
from toolchain.pulumi_run import withheld

__all__ = ["locked_registry", "programs"]

INDEX = "pypi.example.com"
DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG WORD
RUN --mount=type=secret,id=netrc,target=/dev/netrc,mode=0444 test -s /dev/netrc && env > /environment
"""
"""What a step of a build has: its secret where it is mounted, and an environment that the image shows."""

NEEDING = {
    "registry password": PULUMI,
    "GitHub token": PULUMI,
    "App key": PULUMI,
    "build secret": PULUMI,
    "passphrase": PULUMI,
    "signing key": re.compile("cosign"),
    "key password": re.compile("cosign"),
}
"""By secret: the programs whose environment may have it."""


class Life(Watched):
    """A stack whose every secret is a canary, with signatures and a registry that asks for a login."""

    def __init__(self, project: Project, registry: Registry, folder: Path) -> None:
        super().__init__(project, folder)
        self.plant(*NEEDING)
        self.secrets["registry password"] = PASSWORD
        keys = folder / "keys"
        keys.mkdir()
        variables = {**os.environ, "COSIGN_PASSWORD": self.secrets["key password"]}
        subprocess.run(["cosign", "generate-key-pair"], cwd=keys, env=variables, check=True, capture_output=True)
        self.signing_key = (keys / "cosign.key").read_text()
        self.secrets["signing key"] = self.signing_key.splitlines()[3]
        (keys / "cosign.key").unlink()
        self.signing = {"key": "env://COSIGN_PRIVATE_KEY", "publicKey": (keys / "cosign.pub").read_text()}
        self.repository = f"{registry.address}/{project.path}"
        project.environment |= {
            "PULUMI_CONFIG_PASSPHRASE": self.secrets["passphrase"],
            "SLIPWAY_REGISTRY_USERNAME": USER,
            "SLIPWAY_REGISTRY_PASSWORD": PASSWORD,
            "GITHUB_TOKEN": self.secrets["GitHub token"],
            "INDEX_PASSWORD": self.secrets["build secret"],
        }

    def pulumi(self, *words: str) -> str:
        """Run Pulumi as `make up` and the workflows do, without the signing key in its environment."""
        os.environ["COSIGN_PRIVATE_KEY"] = self.signing_key
        os.environ["COSIGN_PASSWORD"] = self.secrets["key password"]
        try:
            with withheld.withheld(withheld.names("")):
                self.project.environment[WITHHELD] = os.environ[WITHHELD]
                return super().pulumi(*words)
        finally:
            for name in (withheld.KEY, KEY_PASSWORD):
                del os.environ[name]
            self.project.environment.pop(WITHHELD, None)


@pytest.fixture
def life(programs: str, locked_registry: Registry, tmp_path: Path) -> Life:
    project = Project(tmp_path / "project")
    project.environment["PATH"] = programs
    return Life(project, locked_registry, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("SLIPWAY_DOCKER_PROVIDER") == "official", reason="it takes no build secrets")
def test_no_secret_of_a_life_leaves_its_place(life: Life, tmp_path: Path) -> None:
    base_image()
    project = life.project
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE)
    project.configure(
        base=BASE,
        registry={"kind": "generic", "repository": life.repository},
        signing=life.signing,
        buildSecrets={INDEX: {"username": "ci", "variable": "INDEX_PASSWORD"}},
        mirrors={**json.loads(os.environ.get("SLIPWAY_MIRRORS", "{}")), "pythonIndex": f"https://{INDEX}/simple"},
        vulnerabilities={"database": str(write(tmp_path / "database.tar.gz", []))},
    )
    life.prepare("stack", "init", "--no-select", "t")
    life.prepare("config", "set", "--secret", "app:privateKey", "--stack", "t", secret=life.secrets["App key"])
    assert not life.hits((project.root / "stacks/Pulumi.t.yaml").read_bytes())

    life.pulumi("preview")
    life.pulumi("up", "--yes", "--skip-preview")
    image = project.outputs()["images"]["link0"]
    life.pulumi("preview", "--diff", "--expect-no-changes")
    life.pulumi("refresh", "--yes", "--skip-preview")
    for command in ("list", "show t", "check", "diff t", "verify t", "scan t"):
        life.slipway(*command.split())
    life.slipway("export", "t", "link0", "--format", "sqsh", "--output", str(tmp_path / "image.sqsh"))
    life.slipway("compose", "t")

    engine = DockerClient.from_env()
    local = engine.images.get(image["ref"])
    built = [b"".join(local.save()), json.dumps([local.history(), local.attrs]).encode()]
    assert b"WORD=one" in built[0]
    life.pulumi("destroy", "--yes", "--skip-preview")
    engine.images.remove(str(local.id), force=True)

    started = life.started()
    assert {"pulumi", "cosign", "syft", "grype", "git"} <= set(started), started
    assert started["cosign"] == {"signing key", "key password"}
    assert needless(started, NEEDING) == set()

    assert life.hits(life.output.encode()) == set()
    assert [hits for content in built if (hits := life.hits(content))] == []
    assert life.left() == {}
