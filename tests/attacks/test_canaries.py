"""A whole life of a stack with a canary in each secret: every process is watched, and everything left is read."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from stacks.child_environment import PASSWORD as KEY_PASSWORD
from stacks.child_environment import WITHHELD
from tests.engine.project import Project
from tests.engine.test_signing import BASE, locked_registry, programs
from tests.fakes.vulnerability_database import write
from tests.images.engine import base_image
from tests.provider.conftest import PASSWORD, USER, Registry
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.pulumi_run import withheld

__all__ = ["locked_registry", "programs"]

INDEX = "pypi.example.com"
DOCKERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG WORD
RUN --mount=type=secret,id=netrc,target=/dev/netrc,mode=0444 test -s /dev/netrc && env > /environment
"""
"""What a step of a build has: its secret where it is mounted, and an environment that the image shows."""

PULUMI = re.compile(r"pulumi(-.*)?|python[0-9.]*|env")
"""Pulumi, its plugins, and the Python that its launchers start: the program and the providers."""
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
EXEC = re.compile(
    r'\bexecve\("(?P<file>[^"]*)", \[(?P<argv>.*?)\], \[(?P<env>.*)\](\) += 0| <unfinished \.\.\.>)$', re.MULTILINE
)


class Life:
    """A stack whose every secret is a canary, on a machine where the start of each process is noted."""

    def __init__(self, project: Project, registry: Registry, folder: Path) -> None:
        self.project = project
        self.trace = folder / "trace"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.output = ""
        self.secrets = {name: f"canary{uuid.uuid4().hex}" for name in NEEDING}
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
            "DOCKER_CONFIG": str(folder / "nothing"),
            "TMPDIR": str(self.temporary),
            "GITHUB_TOKEN": self.secrets["GitHub token"],
            "INDEX_PASSWORD": self.secrets["build secret"],
        }

    def prepare(self, *words: str, secret: str = "") -> None:
        """Run Pulumi before the life begins; it reads ``secret`` from standard input."""
        words = ("pulumi", *words, "--non-interactive")
        root, environment = self.project.root, self.project.environment
        subprocess.run(words, cwd=root, env=environment, input=secret, text=True, check=True, capture_output=True)

    def run(self, *words: str) -> str:
        """Run a program of the life under strace; return its output."""
        trace = ["strace", "--follow-forks", "--seccomp-bpf", "--output", f"{self.trace}.{uuid.uuid4().hex}"]
        trace += ["--trace=execve", "--no-abbrev", "--string-limit=1000000", "--"]
        done = subprocess.run(
            [*trace, *words], cwd=self.project.root, env=self.project.environment, capture_output=True, check=False
        )
        output = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == 0, f"{shlex.join(words)}\n{output}"
        self.output += output
        return output

    def pulumi(self, *words: str) -> str:
        """Run Pulumi as `make up` and the workflows do, without the signing key in its environment."""
        os.environ["COSIGN_PRIVATE_KEY"] = self.signing_key
        os.environ["COSIGN_PASSWORD"] = self.secrets["key password"]
        try:
            with withheld.withheld(withheld.names("")):
                self.project.environment[WITHHELD] = os.environ[WITHHELD]
                return self.run("pulumi", *words, "--non-interactive", "--stack", "t")
        finally:
            for name in (withheld.KEY, KEY_PASSWORD):
                del os.environ[name]
            self.project.environment.pop(WITHHELD, None)

    def slipway(self, *words: str) -> str:
        """Run the command `slipway`."""
        return self.run(sys.executable, "-m", "stacks", *words)

    def processes(self) -> Iterator[tuple[str, str, str]]:
        """Yield the program, the arguments and the environment of each process that was started."""
        for file in self.trace.parent.glob(f"{self.trace.name}.*"):
            for match in EXEC.finditer(file.read_text(errors="replace")):
                yield Path(match["file"]).name, match["argv"], match["env"]

    def hits(self, content: bytes) -> set[str]:
        """Return the names of the secrets that a content has, as they are or in base64."""
        return {
            name
            for name, secret in self.secrets.items()
            if any(form in content for form in (secret.encode(), *encoded(secret)))
        }


def encoded(secret: str) -> Iterator[bytes]:
    """Yield the base64 of a secret at each place in a longer text, without what its neighbours decide."""
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + secret.encode() + b"\0" * 3)
        yield text[4 if offset else 0 : -8]


@pytest.fixture
def life(programs: str, locked_registry: Registry, tmp_path: Path) -> Life:
    if shutil.which("strace") is None:
        apt.install(Checkout.here(), "strace")
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

    watched = list(life.processes())
    started = {program for program, _, _ in watched}
    assert {"pulumi", "cosign", "syft", "grype", "git"} <= started, started
    arguments: defaultdict[str, set[str]] = defaultdict(set)
    environments: defaultdict[str, set[str]] = defaultdict(set)
    for program, argv, variables in watched:
        arguments[program] |= life.hits(argv.encode())
        environments[program] |= life.hits(variables.encode())
    assert {program: names for program, names in arguments.items() if names} == {}
    assert environments["cosign"] == {"signing key", "key password"}
    needless = {
        (program, name)
        for program, names in environments.items()
        for name in names
        if not NEEDING[name].fullmatch(program)
    }
    assert needless == set()

    assert life.hits(life.output.encode()) == set()
    assert [hits for content in built if (hits := life.hits(content))] == []
    assert [path.name for path in life.temporary.iterdir() if path.name.startswith("slipway")] == []
    left = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("trace.")]
    assert {str(path): hits for path in left if (hits := life.hits(opened(path)))} == {}


def opened(path: Path) -> bytes:
    """Return a file's content; a compressed layer's too."""
    content = path.read_bytes()
    return content + (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else b"")
