"""The platforms that the real engine runs, and that asking for them leaves nothing there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from containers.engine.engine_platforms import PLATFORMS, runnable_platforms
from toolchain.machine import apt
from toolchain.parts.emulation import HANDLERS


def listed(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


def test_platforms_are_the_machines_and_the_registered() -> None:
    own = f"linux/{apt.machine()}"
    (other,) = {*PLATFORMS} - {own}
    handler = Path("/proc/sys/fs/binfmt_misc") / HANDLERS[other]
    emulated = (
        {other: "emulated"} if handler.exists() and "F" in handler.read_text().split("flags:")[1].split()[0] else {}
    )
    assert runnable_platforms() == {own: "native", **emulated}
    assert listed("image", "ls", "--all", "--quiet", "--filter", "label=slipway.probe") == ""
    assert listed("container", "ls", "--all", "--quiet", "--filter", "label=slipway.probe") == ""
