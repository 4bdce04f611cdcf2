"""Any registry that takes a user name and a password: ``kind: generic``, and the kinds that are a model alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pulumi

from components.registry.interface import PushLogin, Registry, RegistryArgs
from containers.errors import SlipwayError
from containers.registry.logins import stack_login
from stacks.config.registries import generic
from stacks.plan import Plan


@dataclass(frozen=True, kw_only=True)
class PasswordRegistryArgs(RegistryArgs):
    """A user name and a password or token that outlives a build; both or neither.

    Without them ``short_lived`` returns both, if it is given. ``kind`` is the registry's in the configuration.
    """

    kind: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    short_lived: Callable[[], tuple[str, str]] | None = None


class PasswordRegistry(Registry):
    """A registry with a user name and a password or token; the latter stays secret."""

    def __init__(self, name: str, args: PasswordRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        self._args = args
        super().__init__(name, args, opts)

    def _component(self) -> str:
        return f"{self._args.kind.title()}Registry"

    @property
    def lasts(self) -> bool:
        """Whether a password is given."""
        return self.publish and self._args.password is not None

    def login(self, after: Sequence[pulumi.Input[str]]) -> PushLogin:
        """Return the user name and the password, the password as a secret; none where nothing is pushed.

        A short-lived login is requested once ``after`` is known, and never at a preview.
        """
        if not self.publish:
            return PushLogin()
        if self._args.password is not None:
            return PushLogin(self._args.username, pulumi.Output.secret(self._args.password))
        short_lived = self._args.short_lived
        if short_lived is None or pulumi.runtime.is_dry_run():
            return PushLogin()
        pair = pulumi.Output.all(*after).apply(lambda _: _answer(short_lived))
        return PushLogin(pair[0], pulumi.Output.secret(pair[1]), short_lived=True)


def _answer(short_lived: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    try:
        return short_lived()
    except SlipwayError as error:
        raise pulumi.RunError(str(error)) from None


def declare(plan: Plan) -> Registry:
    """Declare the registry of a plan, which has a user name and a password."""
    config = plan.config.registry
    assert isinstance(config, generic.GenericRegistryConfig)  # noqa: S101 - the configuration's model chose this module
    args = PasswordRegistryArgs(
        repository=config.repository,
        publish=plan.config.publish,
        kind=config.kind,
        username=config.username,
        password=config.password.get_secret_value() if config.password else None,
        short_lived=stack_login.short_lived(config),
    )
    return PasswordRegistry("registry", args)
