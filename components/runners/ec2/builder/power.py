"""``Awake`` and ``Asleep``: the builder's power, on before its first image is built and off after its last."""

from __future__ import annotations

import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import Action
from components.runners.ec2.builder import ssh_config
from containers.child_environment import NETWORK_SECONDS, child_environment
from containers.errors import SlipwayError, one_line

READY = "slipway-ready"
"""The builder's command that says whether it can build (boot/ready): 0, or 3 with the reason why it never will."""

_NEVER_READY = 3


@dataclass(frozen=True)
class PowerArgs:
    """The builder's region, name and instance id, and the tag of each image it builds or has built."""

    region: str
    name: str
    instance: pulumi.Input[str]
    images: Mapping[str, pulumi.Input[str]]


class _PowerAction(Action):
    """Starts or stops the builder ``name`` in ``region`` whenever an image or the machine changes."""

    id_input = "name"
    triggers = ("instance", "images")

    @abstractmethod
    def switch(self, region: str, name: str) -> None:
        """Start or stop the builder."""

    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Start or stop the builder; return its region and name."""
        self.switch(props["region"], props["name"])
        return {key: props[key] for key in ("region", "name")}


class StartBuilder(_PowerAction):
    """Starts the builder and waits until it can build."""

    def switch(self, region: str, name: str) -> None:
        """Start the builder."""
        start(region, name)


class StopBuilder(_PowerAction):
    """Stops the builder."""

    def switch(self, region: str, name: str) -> None:
        """Stop the builder."""
        stop(region, name)


class Awake(Resource, module="runners", name="Awake"):
    """The builder runs and its Docker answers. Images are built after this."""

    def __init__(self, name: str, args: PowerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(StartBuilder(), name, vars(args).copy(), opts)


class Asleep(Resource, module="runners", name="Asleep"):
    """The builder is stopped after the last image. If an image fails, the builder stops itself instead."""

    def __init__(self, name: str, args: PowerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(StopBuilder(), name, vars(args).copy(), opts)


def start(region: str, name: str, seconds: float = ssh_config.SECONDS) -> None:
    """Start the builder and wait until it can build. Raises SlipwayError: it does not start, or it cannot build."""
    from components.runners.ec2.builder.builder_instance import BuilderInstance  # noqa: PLC0415 - imports boto3

    end = time.monotonic() + seconds
    instance = BuilderInstance(region, name).start(end)
    while True:
        response = _ssh(name, ssh_config.HOST, READY)
        if response.returncode == 0:
            return
        refused = ssh_config.folder(name) / ssh_config.REFUSED
        if response.returncode == _NEVER_READY:
            stop(region, name)  # the next update starts it again
            raise SlipwayError(
                f"the builder {name} ({instance}) cannot build: {one_line(response.stdout.strip(), 400)}"
            )
        if refused.exists():
            raise SlipwayError(f"the builder cannot be reached: {refused.read_text(encoding='utf-8').strip()}")
        if time.monotonic() > end:
            reason = response.stderr.strip() or f"{READY} ended with {response.returncode}"
            raise SlipwayError(
                f"the builder {name} ({instance}) does not answer: {one_line(reason, 400)}; log in to it with "
                f"`aws ssm start-session --region {region} --target {instance}`"
            )
        time.sleep(3)


def stop(region: str, name: str) -> None:
    """Close the shared connection and stop the builder. Raises SlipwayError: AWS refuses."""
    from components.runners.ec2.builder.builder_instance import BuilderInstance  # noqa: PLC0415 - as above

    with suppress(OSError):
        _ssh(name, "-O", "exit", ssh_config.HOST)
    BuilderInstance(region, name).stop()


def _ssh(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["ssh", *ssh_config.options(name), *words]
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=child_environment("ssh"),
        timeout=NETWORK_SECONDS,
    )
