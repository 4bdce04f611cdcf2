"""The stack `local-multi` with the real torch: built for both machines, one of them emulated, merged, pulled and run."""

from __future__ import annotations

import hashlib
import json

import pytest

from containers.engine.engine_platforms import PLATFORMS
from containers.registry.client import INDEXES
from tests.engine.test_platforms import UNCHANGED
from tests.helpers import registry_api
from tests.images.engine import docker
from tests.images.published import Published
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.parts import base_image, emulation

pytestmark = pytest.mark.slow  # it installs torch under emulation

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""What a program calls its machine, by platform."""
PRODUCT = "import torch, platform; a = torch.arange(6.).reshape(2, 3); print(platform.machine(), (a @ a.T).tolist())"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The stack, up. The engine has its images no longer."""
    checkout = Checkout.here()
    for platform in {*PLATFORMS} - {f"linux/{apt.machine()}"}:
        emulation.get(checkout, platform)
        base_image.get_for(checkout, platform)
    stack = Published(tmp_path_factory.mktemp("local-multi"), "local-multi")
    stack.up()
    docker("image", "rm", "--force", *stack.built())
    return stack


def test_index_names_torch_for_both_machines(stack: Published) -> None:
    output = stack.outputs()["images"]["torch"]
    host, _, path = output["ref"].partition("@")[0].partition("/")
    raw = registry_api.fetch(f"{host}/{path}/manifests/{output['tag']}", ", ".join(INDEXES))
    assert output["digest"] == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    listed = {
        f"{each['platform']['os']}/{each['platform']['architecture']}": each["digest"]
        for each in json.loads(raw)["manifests"]
    }
    assert listed == {platform: part["digest"] for platform, part in output["platforms"].items()}
    assert [*listed] == [*PLATFORMS]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_torch_pulled_by_platform_multiplies(stack: Published, platform: str) -> None:
    output = stack.outputs()["images"]["torch"]
    name = f"{output['ref'].partition('@')[0]}:{output['tag']}"
    docker("pull", "--quiet", "--platform", platform, name)
    printed = docker("run", "--rm", "--platform", platform, name, "python", "-c", PRODUCT).stdout.splitlines()
    docker("image", "rm", "--force", name)
    # Before it, oneDNN may say that the emulated processor has no entry in sysfs.
    assert printed[-1] == f"{MACHINES[platform]} [[5.0, 14.0], [14.0, 50.0]]"


def test_second_up_changes_nothing(stack: Published) -> None:
    before = stack.outputs()
    assert UNCHANGED.search(stack.up())
    assert stack.outputs() == before
