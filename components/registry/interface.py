"""What every kind of registry offers: the names that images are pushed under, and credentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from containers.registry.reference import Reference


@dataclass(frozen=True)
class PushLogin:
    """User name and password for a push. Without both, the machine's Docker login is used.

    ``short_lived`` is whether the environment's cloud identity gave them, and gives new ones.
    """

    username: pulumi.Input[str] | None = None
    password: pulumi.Input[str] | None = None
    short_lived: bool = False


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """The prefix of every image's name (host and path), and whether images are pushed."""

    repository: str
    publish: bool = True


class Registry(pulumi.ComponentResource):
    """A registry: a repository for each image, and credentials."""

    repository: str
    """The prefix of every image's name: host and path."""

    server: str
    """The registry's ``host[:port]``."""

    publish: bool
    """Whether images are pushed; a build alone needs no credential."""

    def __init__(self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"slipway:registry:{self._component()}", name, {"repository": args.repository}, opts)
        self.repository = args.repository
        self.server = Reference(args.repository).host
        self.publish = args.publish
        self._declare()
        self.register_outputs({"repository": args.repository})

    def _component(self) -> str:
        """Return the last part of the component's type, which states have."""
        return type(self).__name__

    def _declare(self) -> None:
        """Declare the registry's own resources; most registries exist already and have none."""

    @property
    def lasts(self) -> bool:
        """Whether there is a login that outlives an update."""
        return False

    def login(self, after: Sequence[pulumi.Input[str]]) -> PushLogin:  # noqa: ARG002 - what lasts longer than a build needs no order
        """Return credentials, requested once ``after`` is known: short-lived ones as late as possible."""
        return PushLogin()

    def keep(self, name: str, ref: pulumi.Output[str], parent: pulumi.Resource) -> None:
        """Keep the image ``name``, pushed as ``ref``, in the registry as long as the stack exports it.

        Most registries delete nothing by themselves.
        """
