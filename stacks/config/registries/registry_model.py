"""What every kind of registry has in the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stacks.config.model import Model


class RegistryModel(Model):
    """A registry that images are pushed to."""

    if TYPE_CHECKING:  # a field in most kinds, and a property in others

        @property
        def kind(self) -> str:
            """Which kind it is, by its name in the configuration."""

        @property
        def repository(self) -> str:
            """The prefix of every image's name: host and path."""

    def check_complete(self) -> None:
        """Refuse credentials that are only half there. Called where images are pushed.

        Raises:
            ValueError: naming what is missing and how to give it.
        """

    @property
    def of_this_machine(self) -> bool:
        """Whether it is the toolchain's, which nothing beyond this machine reaches."""
        return False

    def created_repositories(self, images: Iterable[str]) -> frozenset[str]:  # noqa: ARG002 - most registries make repositories by themselves
        """Return the full names of the repositories that a stack with these images creates, and so alone may have."""
        return frozenset()

    def pull_reference(self, reference: str) -> str:
        """Return where a build pulls an outside parent from: the reference itself, but for a registry that caches."""
        return reference

    @property
    def cached(self) -> Mapping[str, str]:
        """The registries that are pulled through this one, with where their repositories stand in it."""
        return {}
