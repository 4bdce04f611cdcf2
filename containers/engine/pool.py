"""A pool of engines of one platform, and which of them takes an image."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from containers.engine.connection import Address, Connection
from containers.engine.engine_platforms import CannotRun, check_runnable
from containers.errors import SlipwayError


class Pool:
    """The engines of one platform.

    An image goes to the same engine, with its cache, at each update, as long as that engine answers. Another engine in
    the pool moves few images (rendezvous hashing). An engine that does not answer gets no image until the update ends.

    ``images`` are the names of the stack's images for the platform, without registry and tag. No engine is the first
    choice of more than its share of them, so that independent images do not wait for one engine while another has
    none (Mirrokni et al., Consistent Hashing with Bounded Loads, arXiv:1608.01350).

    ``runs_programs`` says whether any of the images runs programs of the platform while it is built: any engine builds
    one that does not. ``together`` has one engine take all of them, since images that are not pushed must be beside
    their parents.
    """

    others: ClassVar[str] = "others of the list take its images"
    """What is said of an engine that is gone."""

    def __init__(
        self,
        platform: str,
        engines: Sequence[str],
        images: Collection[str] = (),
        *,
        runs_programs: bool = True,
        together: bool = False,
    ) -> None:
        self.platform = platform
        self.key = f"slipway:engines.{platform}"
        """The key of the configuration that errors begin with."""
        self._programs = [platform] if runs_programs else []
        self._together = together
        self.engines = tuple(engines)
        self._first = {} if together else self._shares(images)
        self._lock = threading.Lock()
        self._checks = {engine: threading.Lock() for engine in engines}
        self._checked: dict[str, CannotRun | None] = {}
        self._failures: dict[str, str] = {}

    def order(self, image: str) -> list[str]:
        """Return the engines for an image, the first choice first; ``image`` is its name without registry and tag."""
        image = "" if self._together else image
        first = self._first.get(image)
        return sorted(self.engines, key=lambda engine: (engine == first, self._weight(engine, image)), reverse=True)

    def engine(self, image: str) -> str:
        """Return the engine that takes an image.

        Raises SlipwayError: no engine answers, or the first that answers cannot run the platform.
        """
        for engine in self.order(image):
            if self._is_up(engine):
                return engine
        reasons = "; ".join(self._failures[engine] for engine in self.engines)
        raise SlipwayError(f"{self.key}: no engine answers: {reasons}")

    def connect(self, engine: str) -> Connection:
        """Connect to an engine. Raises SlipwayError: it does not answer."""
        return Connection(Address(engine, ssh=("-o", "BatchMode=yes")))

    def check(self, engine: str) -> None:
        """Ask an engine whether it can build for the platform.

        Raises:
            CannotRun: it answers, and cannot run the platform.
            SlipwayError: it does not answer.
        """
        check_runnable(self._programs, engine, key="slipway:engines")

    def refusal(self, engine: str) -> str:
        """Return why an engine that answers cannot build for the platform, as one line; empty if it can."""
        try:
            self._is_up(engine)
        except CannotRun as error:
            return str(error)
        return ""

    def answering(self, engines: Iterable[str]) -> list[str]:
        """Return those of some engines that are in the pool and have not failed."""
        return [engine for engine in engines if engine in self.engines and engine not in self._failures]

    def fail(self, engine: str, reason: str) -> None:
        """Give no further image to an engine, and say so once."""
        with self._lock:
            if engine in self._failures:
                return
            self._failures[engine] = reason
        left = len(self.engines) > len(self._failures)
        then = self.others if left else f"nothing can be built for {self.platform}"
        # Standard output is the way from a thread of the program to the user.
        sys.stdout.write(f"{self.key}: {reason}; {then}\n")
        sys.stdout.flush()

    def _is_up(self, engine: str) -> bool:
        """Return whether an engine answers; it is asked once.

        Raises CannotRun: it answers, and cannot run the platform.
        """
        with self._checks[engine]:
            if engine not in self._checked and engine not in self._failures:
                self._checked[engine] = None
                try:
                    self.check(engine)
                except CannotRun as error:
                    self._checked[engine] = error
                except SlipwayError as error:
                    self.fail(engine, str(error))
        if refusal := self._checked.get(engine):
            raise refusal
        return engine not in self._failures

    def _shares(self, images: Collection[str]) -> dict[str, str]:
        """Return the first choice of each image: of the engines that have room for it, the one with the most weight."""
        room = -(-len(images) // len(self.engines)) if self.engines else 0
        first: dict[str, str] = {}
        count: Counter[str] = Counter()
        pairs = ((self._weight(engine, image), engine, image) for image in images for engine in self.engines)
        for _, engine, image in sorted(pairs, reverse=True):
            if image not in first and count[engine] < room:
                first[image] = engine
                count[engine] += 1
        return first

    def _weight(self, engine: str, image: str) -> bytes:
        return hashlib.sha256(f"{engine}\0{self.platform}\0{image}".encode()).digest()
