"""A repository of small images, with this project's own code and workflows, and its bare remote."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from stacks.config.stack_file import ROOT
from tests.engine.project import DOCKERFILE, FLAVOR
from tests.fakes.github.actions import WORKFLOWS, Event
from tests.helpers import pulumi_cli
from tests.helpers.sample_repository import Checkout

CODE = (".ci", "ci", "cli", "components", "containers", "maintenance", "scaler", "stacks", "toolchain", WORKFLOWS)
FILES = ("Pulumi.yaml", "__main__.py", "pyproject.toml", "requirements.lock", ".gitignore")

MAKEFILE = """\
test-all:
\t@echo shard: $(SHARD)
\t@mkdir reports
\t@echo "$(PYTEST_ARGS)" > $(or $(patsubst --junitxml=%,%,$(filter --junitxml=%,$(PYTEST_ARGS))),/dev/null)
fuzz:
\t@echo "fuzz: $(HARNESS), $(SECONDS) s"
down:
\t@echo down
"""
"""In place of the project's own, which would run its tests: what they are given, and a report where one is to be."""


class Repository(Checkout):
    """A work tree to make commits in, and ``remote``, to which they are pushed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "work")
        self.remote = folder / "remote.git"
        self.path = f"test-{uuid.uuid4().hex[:8]}"
        # Without the contracts, as there are no upstreams.
        ignored = shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml", "lock.toml", "contracts")
        for code in CODE:
            shutil.copytree(ROOT / code, self.root / code, ignore=ignored)
        for file in FILES:
            shutil.copy(ROOT / file, self.root)
        pulumi_cli.write_pip(self.root)
        self.write("maintenance/refresh/sources.toml", "source = []\n")  # tests ask no public source
        self.write("Makefile", MAKEFILE)
        self.write(".ci/debian", '#!/bin/sh\nexec .ci/run "$@"\n')  # no registry here has its container
        self.write(".ci/store", "#!/bin/sh\n")  # this machine's engine is not the workflow's
        self.write("stacks/flavors/chain.py", FLAVOR)
        for number in range(2):
            self.write(f"dockerfiles/link{number}/Dockerfile", DOCKERFILE.format(number=number))
            self.write(f"dockerfiles/link{number}/Dockerfile.dockerignore", f"*\n!link{number}\n")
            self.write(f"dockerfiles/link{number}/file.txt", f"content {number} {self.path}\n")
        self.configure("one", length=2)
        self.configure("two", word="two", runsOn=["self-hosted", "builders"])
        self.git("init", "-q", "-b", "main")
        self.git("init", "-q", "--bare", "-b", "main", str(self.remote))
        self.git("remote", "add", "origin", str(self.remote))

    @classmethod
    def again(cls, folder: Path, path: str) -> Repository:
        """Return the repository that a folder is a copy of."""
        repository = cls.__new__(cls)
        Checkout.__init__(repository, folder / "work")
        repository.remote, repository.path = folder / "remote.git", path
        repository.git("remote", "set-url", "origin", str(repository.remote))
        return repository

    def configure(self, stack: str, **values: Any) -> None:
        """Write a stack's YAML."""
        address = os.environ.get("SLIPWAY_REGISTRY", "127.0.0.1:5000")
        registry = {"kind": "local", "address": address, "path": f"{self.path}/{stack}"}
        keys = {"flavor": "chain", "registry": registry, **values}
        lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in keys.items()]
        self.write(f"stacks/Pulumi.{stack}.yaml", "\n".join(["config:", *lines]) + "\n")

    def push(self, message: str = "a change", branch: str = "main") -> Event:
        """Commit everything, push it to a branch, and return the event that it is."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        self.git("push", "-q", "origin", f"HEAD:refs/heads/{branch}")
        return Event("push", f"refs/heads/{branch}", self.git("rev-parse", "HEAD"))

    def pull_request(self, number: int = 1) -> Event:
        """Commit everything as somebody's fork has it, and return the event of its pull request into main.

        What is checked out is the merge of the two that GitHub makes; the fork's branch is in no branch of the remote.
        """
        self.git("checkout", "-q", "-B", "feature/x")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a fork's change")
        head = self.git("rev-parse", "HEAD")
        self.git("checkout", "-q", "--detach", "main")
        self.git("merge", "-q", "--no-ff", "-m", "merged", head)
        merge = self.git("rev-parse", "HEAD")
        self.git("push", "-q", "origin", f"+{merge}:refs/pull/{number}/merge")
        self.git("checkout", "-q", "main")
        payload = {"number": number, "pull_request": {"head": {"sha": head}}}
        return Event("pull_request", f"refs/pull/{number}/merge", merge, payload, base_ref="main", head_ref="feature/x")

    def published(self, path: str) -> str:
        """Return a file of the branch ``published`` on the remote."""
        self.git("fetch", "-q", "origin", "published")
        return self.git("show", f"FETCH_HEAD:{path}")
