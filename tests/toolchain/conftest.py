"""Fixtures of the toolchain's tests."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.pulumi_release import Release
from tests.toolchain.clone import Clone, make
from toolchain import environment
from toolchain.machine.network import proxy
from toolchain.parts import docker_engine, docker_registry


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """An empty checkout."""
    return make(tmp_path)


def _lead_nowhere(config: Path) -> None:
    """Write a configuration of Docker's client whose context has no engine (docker/cli, cli/context/store/metadatastore.go)."""
    context = config / "contexts/meta" / hashlib.sha256(b"none").hexdigest()
    context.mkdir(parents=True)
    nowhere = {"docker": {"Host": "unix:///nonexistent/docker.sock"}}
    (context / "meta.json").write_text(json.dumps({"Name": "none", "Metadata": {}, "Endpoints": nowhere}))
    (config / "config.json").write_text(json.dumps({"currentContext": "none"}))


@pytest.fixture
def clones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Clone, Clone]]:
    """Two empty checkouts on one machine that has neither engine nor registry; all that they start is ended.

    They lie where a path is short enough for a socket. Docker's current context hides an engine at the default socket.
    """
    _lead_nowhere(tmp_path / "docker")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("DOCKER_HOST", docker_registry.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in proxy.VARIABLES:
        monkeypatch.setenv(name, "")
    environment.prepare()
    with TemporaryDirectory(prefix="slipway-", dir="/tmp") as folder:
        clones = make(Path(folder) / "a"), make(Path(folder) / "b")
        yield clones
        for clone in clones:
            docker_registry.stop(clone.checkout)
            docker_engine.stop(clone.checkout)


@pytest.fixture
def release(clone: Clone) -> Iterator[Release]:
    """A stand-in of the place that Pulumi's releases are downloaded from; the clone is pointed at it."""
    with Release(clone.checkout.locked("pulumi")) as standing_in:
        clone.env["SLIPWAY_PULUMI_BASE_URL"] = standing_in.url
        standing_in.pin(clone.root)
        yield standing_in
