"""No false alarm: images of Debian with wheels that people install together, one for each row of `wheel_sets.toml`.

`pytest tests/images/test_wheel_images.py -k tensorflow` is for one row.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from containers.image.binaries.contents import Contents
from tests.helpers import folder_image
from tests.images import package_layers, real_loader
from tests.images.engine import Image, remove
from tests.images.once import once
from tests.images.package_layers import ENVIRONMENT, DebianImage
from tests.images.real_loader import Referee

pytestmark = pytest.mark.slow

TABLE = tomllib.loads(Path(__file__).with_name("wheel_sets.toml").read_text(encoding="utf-8"))
PLATFORMS: Mapping[str, tuple[str, Referee]] = {
    "x86-64": (package_layers.PLATFORM, real_loader.GLIBC),
    "aarch64": ("aarch64-manylinux_2_36", real_loader.GLIBC_ON_ARM),
    "musl": ("x86_64-unknown-linux-musl", real_loader.MUSL),
}
"""What `uv` calls a platform, and its loader."""
SAMPLE = 50
"""Files of a set that the real loader resolves too."""


class WheelSet(NamedTuple):
    """An installed row: its name, the folder of its environment, the Debian under it, both as an image, and its loader."""

    name: str
    environment: Path
    debian: Image
    contents: Contents
    referee: Referee


@pytest.fixture(scope="module")
def debian_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., DebianImage]]:
    """A function that returns Debian with some packages."""

    def make(*packages: str) -> DebianImage:
        return package_layers.debian_image(tmp_path_factory.mktemp("debian"), *packages)

    with once(make, lambda made: remove(made.image)) as get:
        yield get


@pytest.fixture(scope="module", params=TABLE["set"])
def wheel_set(request: pytest.FixtureRequest, debian_image: Callable[..., DebianImage]) -> Iterator[WheelSet]:
    row = TABLE["set"][request.param]
    debian = debian_image(*TABLE["debian"][row.get("debian", "plain")])
    with TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        cache = Path(folder, "cache")
        platform, referee = PLATFORMS[row.get("platform", "x86-64")]
        package_layers.install_wheels(
            environment, cache, *row["wheels"], alone=False, newest=TABLE["newest"], platform=platform
        )
        layers = [debian.files, folder_image.index(environment, ENVIRONMENT)]
        yield WheelSet(request.param, environment, debian.image, folder_image.image(layers), referee)


def test_wheels_of_set_have_no_other_fault(wheel_set: WheelSet) -> None:
    misses = set(TABLE["set"][wheel_set.name].get("misses", ()))
    faults = folder_image.faults(wheel_set.contents, wheel_set.referee.machine)
    assert [str(fault) for fault in faults if not misses.issuperset(fault.names)] == []
    assert {name for fault in faults for name in fault.names} == misses


def test_wheels_of_set_resolve_as_by_the_real_loader(wheel_set: WheelSet) -> None:
    loadable = real_loader.loadable(wheel_set.contents, wheel_set.referee.machine)
    files = [path for path in loadable if path.startswith(ENVIRONMENT)]
    files = random.Random(wheel_set.name).sample(files, min(len(files), SAMPLE))
    mount = f"--volume={wheel_set.environment}:/{ENVIRONMENT}:ro"
    assert files
    referee = wheel_set.referee
    assert real_loader.differences(wheel_set.debian, wheel_set.contents, files, mount, referee=referee) == []
