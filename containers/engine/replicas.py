"""The replicas of a build service as a pool of engines, reached with certificates that an update may make first."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from contextlib import closing
from http.client import OK, HTTPException
from typing import Final

from containers.engine import engine_access
from containers.engine.connection import Connection
from containers.engine.pool import Pool
from containers.errors import SlipwayError

_SECONDS: Final = 20
"""Until a replica answers."""
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
        """Keep a replica's certificates, which are as of :attr:`containers.engine.engine_access.Access.tls`."""
        self._certificates[name] = certificates
        self._learned[name].set()

    def connect(self, engine: str) -> Connection:
        """Connect to a replica.

        Raises:
            SlipwayError: it does not answer.
        """
        try:
            return Connection(f"tcp://{self._addresses[engine]}", self._known(engine))
        except SlipwayError as error:
            raise SlipwayError(f"{engine}: {error}") from None

    def check(self, engine: str) -> None:
        """Ask a replica for an answer.

        Raises:
            SlipwayError: there is none.
        """
        address, certificates = self._addresses[engine], self._known(engine)
        try:
            with closing(engine_access.connection(address, certificates, _SECONDS)) as connection:
                connection.request("GET", "/_ping", headers={"Connection": "close"})
                status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            raise SlipwayError(f"{engine}: no answer at {address}: {error}") from None
        if status != OK:
            raise SlipwayError(f"{engine}: no answer at {address}: HTTP {status}")

    def _known(self, name: str) -> Mapping[str, str]:
        if not self._learned[name].wait(_LEARNING_SECONDS):
            raise SlipwayError(f"{name}: this update has no certificate for it")
        return self._certificates[name]
