"""``EngineReadiness``: a Docker engine with TLS that answers this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import Action
from containers.engine.connection import Address
from containers.engine.engine import Engine
from containers.errors import SlipwayError

SECONDS = 300
"""Seconds to wait. The name of a new load balancer takes minutes to resolve."""


@dataclass(frozen=True)
class EngineReadinessArgs:
    """The engine's ``host:port``, the authority of its certificate, and the client's certificate and key, as PEM."""

    address: str
    ca: pulumi.Input[str]
    cert: pulumi.Input[str]
    key: pulumi.Input[str]


class WaitForEngine(Action):
    """Waits for a Docker engine."""

    id_input = "address"
    triggers = ("address", "ca")

    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until the engine answers."""
        wait(props["address"], props["ca"], props["cert"], props["key"])
        return {}


class EngineReadiness(Resource, module="runners", name="Reached"):
    """An engine that answers. Images depend on it, because a ready pod need not be reachable from this machine yet."""

    def __init__(self, name: str, args: EngineReadinessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"address": args.address, "ca": args.ca, "cert": args.cert, "key": args.key}
        super().__init__(WaitForEngine(), name, props, opts)


def wait(address: str, ca: str, cert: str, key: str, seconds: float = SECONDS) -> None:
    """Wait until the engine answers.

    Raises TimeoutError: it did not answer in time; with the address, the last reason and what to do.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            Engine.connect(Address(f"tcp://{address}", tls={"ca": ca, "cert": cert, "key": key}))
        except SlipwayError as error:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the build service does not answer at {address}: {error}; runners.build.address, or that of "
                    "its platform's pool, is how this machine reaches it: a load balancer's name, or 127.0.0.1:PORT "
                    "with `kubectl port-forward` running"
                ) from None
            time.sleep(1)
        else:
            return
