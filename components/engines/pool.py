"""A pool of engines of one platform, and which of them takes an image."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Sequence

from oci.engine_platforms import runnable_platforms
from stacks.errors import SlipwayError


class Pool:
    """The engines of one platform.

    An image goes to the same engine at each update, whose cache knows it, as long as that engine answers. Another
    engine in the pool moves as few images as can be (rendezvous hashing). An engine that does not answer gets no image
    until the update ends.
    """

    def __init__(self, platform: str, engines: Sequence[str]) -> None:
        self.platform = platform
        self.engines = tuple(engines)
        self._lock = threading.Lock()
        self._checks = {engine: threading.Lock() for engine in engines}
        self._runs: dict[str, bool] = {}
        self._failures: dict[str, str] = {}

    def order(self, image: str) -> list[str]:
        """Return the engines for an image, the first choice first; ``image`` is its name without registry and tag."""

        def weight(engine: str) -> bytes:
            return hashlib.sha256(f"{engine}\0{self.platform}\0{image}".encode()).digest()

        return sorted(self.engines, key=weight, reverse=True)

    def engine(self, image: str) -> str:
        """Return the engine that takes an image.

        Raises:
            SlipwayError: no engine answers, or one cannot run the platform.
        """
        for engine in self.order(image):
            if self._is_up(engine):
                return engine
        reasons = "; ".join(self._failures[engine] for engine in self.engines)
        raise SlipwayError(f"slipway:engines.{self.platform}: no engine answers: {reasons}")

    def fail(self, engine: str, reason: str) -> None:
        """Give no further image to an engine, and say so once."""
        with self._lock:
            if engine in self._failures:
                return
            self._failures[engine] = reason
        # Standard output is the way from a thread of the program to the user.
        sys.stdout.write(f"slipway:engines.{self.platform}: {reason}; others of the list take its images\n")
        sys.stdout.flush()

    def _is_up(self, engine: str) -> bool:
        """Return whether an engine answers; it is asked once.

        Raises:
            SlipwayError: it answers, and cannot run the platform.
        """
        with self._checks[engine]:
            if engine not in self._runs and engine not in self._failures:
                try:
                    self._runs[engine] = self.platform in runnable_platforms(engine, among=[self.platform])
                except SlipwayError as error:
                    self.fail(engine, str(error))
        if not self._runs.get(engine, True):
            raise SlipwayError(
                f"slipway:engines.{self.platform}: {engine} cannot run programs of {self.platform}: give an engine of "
                "that platform, or let this one emulate it as docs/guides/emulation.md says"
            )
        return engine not in self._failures
