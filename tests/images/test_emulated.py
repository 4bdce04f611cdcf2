"""The `local` stack for the processor that this machine does not have, built and run under emulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.engine import docker
from tests.images.published import Published
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.parts import base_image, emulation

FOREIGN = {"amd64": ("linux/arm64", "aarch64"), "arm64": ("linux/amd64", "x86_64")}[apt.machine()]
PRODUCT = "import torch, platform; a = torch.arange(6.).reshape(2, 3); print(platform.machine(), (a @ a.T).tolist())"


@pytest.mark.slow
def test_local_stack_of_another_processor_multiplies(tmp_path: Path) -> None:
    platform, machine = FOREIGN
    checkout = Checkout.here()
    emulation.get(checkout, platform)
    base_image.get_for(checkout, platform)
    stack = Published(tmp_path, "local", platform=platform)
    stack.up()
    ref = stack.refs()["torch"]
    output = docker("run", "--rm", "--platform", platform, ref, "python", "-c", PRODUCT).stdout.splitlines()
    # Before it, oneDNN may say that the emulated processor has no entry in sysfs.
    assert output[-1] == f"{machine} [[5.0, 14.0], [14.0, 50.0]]"
    docker("image", "rm", "--force", *stack.built(), ref)
