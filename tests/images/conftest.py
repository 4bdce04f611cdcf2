"""Fixtures of the image tests. They need the engine at DOCKER_HOST and the base image, and fail without them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.package_index import VERSIONS, Index, standins
from tests.images.engine import DOCKERFILES, Image, base_image, build, docker, unique
from toolchain.checkout import Checkout
from toolchain.parts import docker_engine

Built = Callable[..., Image]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """A package index with the stand-ins."""
    folder = tmp_path / "index"
    folder.mkdir()
    standins(folder)
    served = Index(folder)
    yield served
    served.close()


@pytest.fixture(scope="session")
def empty_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """A package index without a package, at one address for all tests."""
    served = Index(tmp_path_factory.mktemp("empty-index"))
    yield served
    served.close()


@pytest.fixture
def built(index: Index, empty_index: Index) -> Iterator[Built]:
    """A function that builds all layers of the image from the stand-ins, without the checks, which need the real torch."""
    tags: list[str] = []

    def builder(*flags: str, target: str = "installed", **arguments: str) -> Image:
        tags.append(unique(target))
        # The lower stage reads PYTHON_INDEX_URL too: another address for each test would rebuild it each time.
        arguments = {"PYTHON_INDEX_URL": empty_index.url, "TORCH_INDEX_URL": index.url, **VERSIONS, **arguments}
        done = build(tags[-1], arguments, f"--target={target}", "--network=host", *flags)
        assert done.returncode == 0, done.stdout[-6000:]
        return Image(tags[-1])

    yield builder
    if tags:
        docker("rmi", "--force", *tags)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A copy of the build context, to plant faults in."""
    return shutil.copytree(DOCKERFILES, tmp_path / "context", symlinks=True)


@pytest.fixture(scope="session")
def archives() -> dict[str, str]:
    """The addresses of the Debian archives in the base image, by their last part."""
    sources = docker(
        "run", "--rm", base_image(), "sh", "-c", "cat /etc/apt/sources.list* /etc/apt/sources.list.d/* || true"
    )
    return {
        address.rpartition("/")[2]: address
        for address in re.findall(r"https?://\S+?/debian(?:-security)?(?=\s)", sources.stdout)
    }


@pytest.fixture
def empty_engine() -> Iterator[str]:
    """The address of an empty engine; its path is short enough for a socket."""
    with TemporaryDirectory(prefix="slipway-", dir="/tmp") as folder:
        checkout = Checkout(Path(folder))
        docker_engine._install(checkout)
        docker_engine._start(checkout)
        yield docker_engine._host(checkout)
        docker_engine.stop(checkout)
