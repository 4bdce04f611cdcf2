"""Registries: under which name images are pushed, and with what credentials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pulumi

from stacks.errors import SlipwayError


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


class LocalRegistry(Registry):
    """A registry on this machine, without credentials."""


@dataclass(frozen=True, kw_only=True)
class PasswordRegistryArgs(RegistryArgs):
    """A user name, and a password or token that outlives a build; both or neither.

    Without them ``asked`` gives both, for as long as they last.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    asked: Callable[[], tuple[str, str]] | None = None


class PasswordRegistry(Registry):
    """A registry that takes a user name and a password or token, which stays secret."""

    def __init__(self, name: str, args: PasswordRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        self._args = args
        super().__init__(name, args, opts)

    @property
    def lasts(self) -> bool:
        """Whether it is given."""
        return self.publish and self._args.password is not None

    def login(self, after: Sequence[pulumi.Input[str]]) -> Login:
        """Return the user name and the password, the password as a secret; none where nothing is pushed.

        What does not last is asked for once ``after`` is known, and at no preview.
        """
        if not self.publish:
            return Login()
        if self._args.password is not None:
            return Login(self._args.username, pulumi.Output.secret(self._args.password))
        asked = self._args.asked
        if asked is None or pulumi.runtime.is_dry_run():
            return Login()
        pair = pulumi.Output.all(*after).apply(lambda _: _answer(asked))
        return Login(pair[0], pulumi.Output.secret(pair[1]))


def _answer(asked: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    try:
        return asked()
    except SlipwayError as error:
        raise pulumi.RunError(str(error)) from None


class GenericRegistry(PasswordRegistry):
    """Any registry that takes a user name and a password."""


class GhcrRegistry(PasswordRegistry):
    """GitHub's container registry: a token that may write packages, such as the job's own."""


class AcrRegistry(PasswordRegistry):
    """Azure's container registry: a service principal, a token of the registry's own, or who the job is."""
