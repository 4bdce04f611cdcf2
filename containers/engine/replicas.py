"""The replicas of a build service as a pool of engines, reached with certificates that an update may make first."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final

from containers.engine.connection import Address, Connection, EngineUnreachable
from containers.engine.engine import Engine
from containers.engine.pool import Pool
from containers.errors import SlipwayError

_LEARNING_SECONDS: Final = 60
"""Until the program has the certificates: the update made them before the first image, and tells it at once."""


class Replicas(Pool):
    """The replicas of a build service. They are chosen by name, because their addresses may move, as a port forward's.

    ``addresses`` has the ``host:port`` of each by its name. ``images`` are as of :class:`Pool`. Their nodes have the
    platform's processor, so nothing asks them for the platforms they run. ``key`` is that of their pool in the
    configuration.
    """

    others = "other replicas take its images"

    def __init__(
        self,
        platform: str,
        addresses: Mapping[str, str],
        images: Collection[str] = (),
        *,
        together: bool = False,
        key: str = "slipway:runners.build",
    ) -> None:
        super().__init__(platform, list(addresses), images, together=together)
        self.key = key
        self._addresses = addresses
        self._certificates: dict[str, Mapping[str, str]] = {}
        self._learned = {name: threading.Event() for name in addresses}

    def learn(self, name: str, certificates: Mapping[str, str]) -> None:
        """Keep a replica's certificates, which are as of :attr:`containers.engine.connection.Address.tls`."""
        self._certificates[name] = certificates
        self._learned[name].set()

    def connect(self, engine: str) -> Connection:
        """Connect to a replica. Raises SlipwayError: it does not answer."""
        try:
            return Connection(self._address(engine))
        except SlipwayError as error:
            raise SlipwayError(f"{engine}: {error}") from None

    def check(self, engine: str) -> None:
        """Ask a replica for an answer. Raises SlipwayError: there is none."""
        address = self._address(engine)
        try:
            Engine.connect(address)
        except EngineUnreachable as error:
            raise SlipwayError(f"{engine}: no answer at {error}") from None
        except SlipwayError as error:
            raise SlipwayError(f"{engine}: no answer at {address}: {error}") from None

    def _address(self, name: str) -> Address:
        if not self._learned[name].wait(_LEARNING_SECONDS):
            raise SlipwayError(f"{name}: this update has no certificate for it")
        return Address(f"tcp://{self._addresses[name]}", tls=self._certificates[name])
