"""Resources that do something, and do it again once what they follow is another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pulumi import Input
from pulumi.dynamic import CreateResult, DiffResult, ResourceProvider, UpdateResult

from components.registry.interface import Login

if TYPE_CHECKING:
    from oci import client

LOGIN = ("username", "password")
"""The inputs that say who asks a registry; other ones are no change."""


def login_inputs(login: Login) -> dict[str, Input[str] | None]:
    """Return a login as inputs of a resource."""
    return {"username": login.username, "password": login.password}


class Following(ABC, ResourceProvider):
    """Does something, and does it again once one of the inputs :attr:`followed` is another.

    Nothing is undone when the stack is destroyed. It runs in a process of its own, and holds nothing, so that its
    serialized form is its name.
    """

    serialize_as_secret_always = False

    named_by: ClassVar[str]
    """The input that is the resource's id."""

    followed: ClassVar[tuple[str, ...]]
    """The inputs whose change makes it anew."""

    @abstractmethod
    def outputs(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Do it, and return what the resource puts out beside what it follows.

        Raises:
            SlipwayError: it cannot be done.
        """

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Do it for the first time."""
        return CreateResult(props[self.named_by], self._done(props))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Do it for something else, or in another way."""
        return UpdateResult(self._done(news))

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Say whether it is to be done anew."""
        return DiffResult(changes=any(olds.get(key) != news.get(key) for key in self.followed))

    def _done(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return {key: props.get(key) for key in self.followed} | self.outputs(props)


class OfImage(Following):
    """Does something with the image ``ref``, as whoever :data:`LOGIN` says, or the machine's own login."""

    named_by = "ref"
    followed: ClassVar[tuple[str, ...]] = ("ref",)

    @abstractmethod
    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        """Do it, and return what the resource puts out beside what it follows.

        Raises:
            SlipwayError: it cannot be done.
        """

    def outputs(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Do it with the login of the inputs."""
        from oci import client  # noqa: PLC0415 - a preview asks nobody
        from stacks.references import qualified  # noqa: PLC0415 - as above

        username, password = (props.get(key) for key in LOGIN)
        host = qualified(props["ref"]).partition("/")[0]
        login = client.Login(host, username, password) if username and password else None
        return self.done(props, login)
