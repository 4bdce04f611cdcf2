"""``Awake`` and ``Asleep``: the builder before the first image that is built on it, and after the last."""

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

from components.action import Following
from components.runners.ec2.builder import ssh_config
from stacks.errors import SlipwayError, one_line

READY = "slipway-ready"
"""What tells there whether images can be built (boot/ready): 0, or 3 with the reason why they never can."""

_NEVER = 3


@dataclass(frozen=True)
class ShiftArgs:
    """Where the builder is, its name, the id of its machine and what was, or is to be, built: each image's tag."""

    region: str
    name: str
    instance: pulumi.Input[str]
    images: Mapping[str, pulumi.Input[str]]


class _Shift(Following):
    """Does something with the machine ``name`` in ``region`` whenever an image is another, or the machine."""

    named_by = "name"
    followed = ("instance", "images")

    @abstractmethod
    def done(self, region: str, name: str) -> None:
        """Do it."""

    def outputs(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Do it, and say with which machine."""
        self.done(props["region"], props["name"])
        return {key: props[key] for key in ("region", "name")}


class _Waking(_Shift):
    def done(self, region: str, name: str) -> None:
        wake(region, name)


class _Resting(_Shift):
    def done(self, region: str, name: str) -> None:
        rest(region, name)


class Awake(Resource, module="runners", name="Awake"):
    """Images are built after this: the builder runs, and its Docker answers from here."""

    def __init__(self, name: str, args: ShiftArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(_Waking(), name, vars(args).copy(), opts)


class Asleep(Resource, module="runners", name="Asleep"):
    """The builder is stopped. Where an image fails this does not come about, and the machine stops itself."""

    def __init__(self, name: str, args: ShiftArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(_Resting(), name, vars(args).copy(), opts)


def wake(region: str, name: str, seconds: float = ssh_config.SECONDS) -> None:
    """Start the builder, and wait until it can build.

    Raises:
        SlipwayError: it does not come up, or cannot build; in one line.
    """
    from components.runners.ec2.builder.builder_instance import Machine  # noqa: PLC0415 - boto3, for which no program should pay

    end = time.monotonic() + seconds
    instance = Machine(region, name).start(end)
    while True:
        done = _ssh(name, ssh_config.HOST, READY)
        if done.returncode == 0:
            return
        refused = ssh_config.folder(name) / ssh_config.REFUSED
        if done.returncode == _NEVER:
            rest(region, name)  # the next attempt finds it anew
            raise SlipwayError(f"the builder {name} ({instance}) cannot build: {one_line(done.stdout.strip(), 400)}")
        if refused.exists():
            raise SlipwayError(f"the builder cannot be reached: {refused.read_text(encoding='utf-8').strip()}")
        if time.monotonic() > end:
            said = done.stderr.strip() or f"{READY} ended with {done.returncode}"
            raise SlipwayError(
                f"the builder {name} ({instance}) does not answer: {one_line(said, 400)}; have a look with "
                f"`aws ssm start-session --region {region} --target {instance}`"
            )
        time.sleep(3)


def rest(region: str, name: str) -> None:
    """Stop the builder, and the connection that is kept to it.

    Raises:
        SlipwayError: AWS refuses, in one line.
    """
    from components.runners.ec2.builder.builder_instance import Machine  # noqa: PLC0415 - likewise

    with suppress(OSError):
        _ssh(name, "-O", "exit", ssh_config.HOST)
    Machine(region, name).stop()


def _ssh(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["ssh", *ssh_config.options(name), *words]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
