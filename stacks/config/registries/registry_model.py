"""The base of all kinds of registry in the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from containers.registry.logins.stack_login import LoginSources
from stacks.config.model import Model


class RegistryConfig(Model):
    """A registry that images are pushed to."""

    if TYPE_CHECKING:  # a field in most kinds, and a property in others

        @property
        def kind(self) -> str:
            """Its kind, as the configuration names it."""

        @property
        def repository(self) -> str:
            """The prefix of every image's name: host and path."""

    def check_complete(self) -> None:
        """Refuse incomplete credentials. Called where images are pushed.

        Raises ValueError: naming what is missing and how to give it.
        """

    @property
    def login_sources(self) -> LoginSources | None:
        """Where its login comes from; None for a registry that takes no user name and password."""
        return None

    @property
    def of_this_machine(self) -> bool:
        """Whether it is the toolchain's registry, which only this machine reaches."""
        return False

    @property
    def trusted(self) -> bool:
        """Whether build products in it count without a signature, because nobody from elsewhere may push there."""
        return False

    def created_repositories(self, images: Iterable[str]) -> frozenset[str]:  # noqa: ARG002 - most registries create repositories at a push
        """Return the full names of the repositories that a stack with these images creates and owns."""
        return frozenset()

    def pull_reference(self, reference: str) -> str:
        """Return the reference that a build pulls an outside parent by: itself, or the registry's cache of it."""
        return reference

    @property
    def cached(self) -> Mapping[str, str]:
        """The registries that this one caches, with the prefix of their repositories in it."""
        return {}
