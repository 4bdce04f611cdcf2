"""Registries: under which name images are pushed, and with what credentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi


@dataclass(frozen=True)
class Login:
    """User name and password for a push. Without both, the machine's own Docker login serves."""

    username: pulumi.Input[str] | None = None
    password: pulumi.Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """What every registry is made of: the prefix of every image's name, host and path, and whether to push at all."""

    repository: str
    publish: bool = True


class Registry(pulumi.ComponentResource):
    """What every registry offers an image: a repository, credentials, and whether to push at all."""

    repository: str
    """The prefix of every image's name: host and path."""

    server: str
    """The registry's ``host[:port]``."""

    publish: bool
    """Whether images are pushed; without, a build needs no credential."""

    def __init__(self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"slipway:registry:{type(self).__name__}", name, {"repository": args.repository}, opts)
        self.repository = args.repository
        self.server = args.repository.partition("/")[0]
        self.publish = args.publish
        self._declare()
        self.register_outputs({"repository": args.repository})

    def _declare(self) -> None:
        """Declare what the registry itself consists of; most exist already."""

    @property
    def lasts(self) -> bool:
        """Whether there is a login, and it outlives an update."""
        return False

    def login(self, after: Sequence[pulumi.Input[str]]) -> Login:  # noqa: ARG002 - what lasts longer than a build needs no order
        """Return credentials, made once ``after`` is known: as late as may be, where they do not last."""
        return Login()

    def keep(self, name: str, ref: pulumi.Output[str], parent: pulumi.Resource) -> None:
        """See that the image ``name``, pushed as ``ref``, stays in the registry as long as the stack exports it.

        Most registries delete nothing by themselves.
        """
