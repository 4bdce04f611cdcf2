"""Fixtures of the image tests. They need the engine at DOCKER_HOST and the base image, and fail without them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from containers.image.layers.layer import LayerIndex as Layer
from tests.fakes.package_index import VERSIONS, Index, standins
from tests.helpers import folder_image
from tests.helpers.empty_engine import started
from tests.images import package_layers
from tests.images.engine import DOCKERFILES, Image, base_image, build, docker, remove, unique
from tests.images.once import once
from tests.images.package_layers import ENVIRONMENT, Debian, Wheels

Built = Callable[..., Image]


def standins_index(folder: Path) -> Index:
    """Serve the stand-ins from a new folder."""
    folder.mkdir()
    standins(folder)
    return Index(folder)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """A package index with the stand-ins, for a test that changes it."""
    served = standins_index(tmp_path / "index")
    yield served
    served.close()


@pytest.fixture(scope="session")
def shared_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """A package index with the stand-ins, at one address for all tests: of another, all stages are built again."""
    served = standins_index(tmp_path_factory.mktemp("shared") / "index")
    yield served
    served.close()


PARENT: Final = r"""
FROM {base}
USER root
WORKDIR /workspace
ENV PYTHONDONTWRITEBYTECODE=1
RUN echo before > /var/log/dpkg.log && touch /var/log/alternatives.log /var/cache/ldconfig/aux-cache && \
    printf '[global]\nindex-url = {index}\n' > /etc/pip.conf && \
    sed -i '/^Package: tzdata$/,/^$/s/^Version: .*/Version: 2020a-0/' /var/lib/dpkg/status && \
    mkdir -p /repo /foo/DEBIAN && \
    for version in 1 2; do \
      printf 'Package: foo\nVersion: %s\nArchitecture: all\nMaintainer: n <n@example.com>\nDescription: d\n' "$version" \
        > /foo/DEBIAN/control && dpkg-deb -b /foo "/repo/foo_$version.deb"; \
    done && \
    dpkg -i /repo/foo_1.deb && \
    (dpkg-deb -f /repo/foo_2.deb && echo "Filename: ./foo_2.deb" && echo "Size: $(stat -c %s /repo/foo_2.deb)" && \
      echo "SHA256: $(sha256sum /repo/foo_2.deb | cut -d' ' -f1)") > /repo/Packages && \
    echo 'deb [trusted=yes] file:/repo ./' > /etc/apt/sources.list.d/other.list
"""
"""A parent with what makes a layer hard to repeat: no `/etc/hosts`, which a build hides, logs that a package manager adds to, and
steps that start in its folder with its variables, as on nccl-tests. It names an index for pip. It is old: the distribution has a
newer tzdata, and another source a newer foo."""


@pytest.fixture(scope="session")
def parent(shared_index: Index) -> Iterator[Image]:
    """That parent. It is another in each run, so that none of the layers on it is in the engine's cache."""
    image = Image(unique("parent"))
    docker("build", "--tag", image.tag, "-", text=PARENT.format(base=base_image(), index=shared_index.url))
    yield image
    remove(image)


@pytest.fixture(scope="session")
def build_arguments(parent: Image, shared_index: Index) -> dict[str, str]:
    """The arguments of :func:`built`. Only the layers above what an argument changes are built again."""
    return {"BASE_IMAGE": parent.tag, "REFRESH": "2026-11-21", "TORCH_INDEX_URL": shared_index.url, **VERSIONS}


@pytest.fixture(scope="session")
def built(build_arguments: dict[str, str]) -> Iterator[Built]:
    """A function that builds all layers of the image from the stand-ins, without the checks, which need the real torch.

    It builds once for each set of flags and arguments.
    """

    def make(*flags: str, target: str = "installed", **arguments: str) -> Image:
        image = Image(unique(target))
        done = build(image.tag, {**build_arguments, **arguments}, f"--target={target}", "--network=host", *flags)
        assert done.returncode == 0, done.stdout[-6000:]
        return image

    with once(make, remove) as get:
        yield get


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
    """The address of an empty engine."""
    with started() as address:
        yield address


@pytest.fixture(scope="session")
def debian_files(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    """Debian's own files, which no engine needs to build on."""
    made = package_layers.debian_image(tmp_path_factory.mktemp("debian"))
    remove(made.image)
    return made.files


@pytest.fixture
def debian_packages(tmp_path: Path) -> Debian:
    """A function that returns the layer of some packages of a release of Debian."""

    def unpack(suite: str, *packages: str) -> Layer:
        folder = tmp_path / suite
        folder.mkdir()
        return package_layers.debian_packages(folder, suite, *packages)

    return unpack


@pytest.fixture
def wheels() -> Iterator[Wheels]:
    """A function that returns the layer of some wheels, with what they require unless ``alone``."""
    with TemporaryDirectory() as folder:

        def install(*requirements: str, alone: bool = True) -> Layer:
            environment = Path(folder, "environment")
            package_layers.install_wheels(environment, Path(folder, "cache"), *requirements, alone=alone)
            return folder_image.index(environment, ENVIRONMENT)

        yield install
