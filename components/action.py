"""Base classes of resources that act on something outside of Pulumi, and act again when an input changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pulumi import Input
from pulumi.dynamic import CreateResult, DiffResult, ResourceProvider, UpdateResult

from components.registry.interface import PushLogin

if TYPE_CHECKING:
    from containers.registry import credentials

LOGIN = ("username", "password")
"""The inputs with the registry login. A changed login is not a change of the resource."""


def login_inputs(login: PushLogin) -> dict[str, Input[str] | None]:
    """Return a login as inputs of a resource."""
    return {"username": login.username, "password": login.password}


class Action(ABC, ResourceProvider):
    """Runs once at creation, and again whenever one of its :attr:`triggers` changes.

    Destroying the stack undoes nothing. The provider runs in a process of its own and has no attributes, so that it is
    pickled as its name alone. The name is part of every state: Pulumi imports it to read, update or delete a resource.
    """

    serialize_as_secret_always = False

    id_input: ClassVar[str]
    """The input that becomes the resource's id."""

    triggers: ClassVar[tuple[str, ...]]
    """The inputs whose change runs the action again."""

    @abstractmethod
    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Act, and return the outputs other than the triggers. Raises SlipwayError: the action failed."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Run the action for the first time."""
        return CreateResult(props[self.id_input], self._outputs(props))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Run the action with changed inputs."""
        return UpdateResult(self._outputs(news))

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Report a change if a trigger differs."""
        return DiffResult(changes=any(olds.get(key) != news.get(key) for key in self.triggers))

    def _outputs(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return {key: props.get(key) for key in self.triggers} | self.run(props)


class ImageAction(Action):
    """An action on the image ``ref``. It uses the login in its inputs, or else the machine's own."""

    id_input = "ref"
    triggers: ClassVar[tuple[str, ...]] = ("ref",)

    @abstractmethod
    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Act with a login, and return the outputs other than the triggers. Raises SlipwayError: the action failed."""

    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Act with the login in the inputs."""
        from containers.registry import credentials  # noqa: PLC0415 - previews do without the registry client
        from containers.registry.reference import Reference  # noqa: PLC0415 - as above

        username, password = (props.get(key) for key in LOGIN)
        host = Reference.of(props["ref"]).host
        login = credentials.Login(host, username, password) if username and password else None
        return self.run_as(props, login)
