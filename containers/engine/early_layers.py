"""The archives of an image that an engine holds: one of its lowest layers first, if that comes sooner than all.

An engine without containerd's store of images writes each layer to its disk before the first byte of `docker save`
(moby v26.1.5, image/tarexport/save.go: `save`). So it is given an image of the lowest layers alone, and saves both at
once: what comes of the one is compressed while the other is written. `docker load` takes such an image without
archives of layers. It reads one only where the engine lacks the chain of layers (v20.10.27, v26.1.5, v28.5.2 and
v29.1.0, image/tarexport/load.go: `Load`). A disk that has no room for both archives has room for the one of all once
the other is gone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http import HTTPStatus
from threading import Event
from typing import IO, Final, Self, cast

from containers.engine.connection import CONNECT_SECONDS
from containers.engine.engine import Ending, Engine, EngineError, image_archive, load
from containers.errors import MALFORMED, SlipwayError

_LEAST: Final = 500_000_000
"""Bytes of an image below which its archive comes soon enough."""
_SHARE: Final = 0.25
"""The part of what is wanted that comes first. The engine writes it twice.

So two cores were idle in 3.4 of 87.6 seconds of a push of `local`, 5.96 GB, whose first byte came after 16 s before.
"""
_MOST: Final = 0.5
"""The largest part of an image that is written twice."""
_FULL: Final = re.compile("no space left|disk quota exceeded", re.IGNORECASE)
"""In an engine's error: the words of ENOSPC and EDQUOT in Go (syscall/zerrors_linux_amd64.go)."""


@dataclass(frozen=True)
class EngineImage:
    """An image as its engine names it: its id, and the digests of its layers' archives, the lowest first.

    ``ending`` opens a block in which another thread may end a request of the engine.
    """

    identity: str
    diff_ids: Sequence[str]
    engine: Engine
    ending: Ending = lambda _: nullcontext()

    @classmethod
    def held(cls, identity: str, engine: Engine, ending: Ending = lambda _: nullcontext()) -> Self:
        """Return an image that an engine holds, by its id. Raises SlipwayError: the engine does not describe it."""
        described = engine.json(f"/images/{identity}/json").get("RootFS") or {}
        return cls(identity, [each for each in described.get("Layers") or [] if isinstance(each, str)], engine, ending)

    def saved(self, identity: str, ending: Ending) -> AbstractContextManager[IO[bytes]]:
        """Open what `docker save` writes of an image of the engine."""
        response = self.engine.request("GET", f"/images/{identity}/get", ending=ending)
        return cast("AbstractContextManager[IO[bytes]]", response)


def disk_full(error: SlipwayError) -> bool:
    """Return whether an error is the engine's, and says that its disk is full."""
    return isinstance(error, EngineError) and _FULL.search(str(error)) is not None


@contextmanager
def archives(
    image: EngineImage, wanted: Collection[str], note: Callable[[str], None] = lambda _: None
) -> Iterator[Iterator[IO[bytes]]]:
    """Yield the archives of an image, to be read one after the other. The last has all layers, those before some.

    ``wanted`` are diff ids: of other layers none has to come first. ``note`` takes a line if the engine had no room for
    two archives at once. Nothing is left in the engine when the block ends.

    Raises:
        SlipwayError: the engine cannot save the image; also while an archive is read.
    """
    lowest = image.diff_ids[: _count(_sizes(image), [diff_id in wanted for diff_id in image.diff_ids])]
    with closing(_both(image, lowest, note) if lowest else _whole(image)) as streams:
        yield streams


def _whole(image: EngineImage) -> Generator[IO[bytes]]:
    with image.saved(image.identity, image.ending) as stream:
        yield stream


def _both(image: EngineImage, lowest: Sequence[str], note: Callable[[str], None]) -> Generator[IO[bytes]]:
    with _begun(image) as whole:
        # An engine may refuse such an image, lose it to a `docker image prune`, or be too slow as it writes the other.
        with (
            suppress(SlipwayError),
            _loaded(image.engine, lowest) as identity,
            image.saved(identity, image.ending) as stream,
        ):
            yield stream
        try:
            stream = whole.result()
        except EngineError as error:
            if not disk_full(error):
                raise
        else:
            yield stream
            return
    note("the Docker daemon's disk had no room for two archives at once, so it wrote that of all layers again, alone")
    yield from _whole(image)


@contextmanager
def _begun(image: EngineImage) -> Iterator[Future[IO[bytes]]]:
    """Have the engine write the archive of all layers; another thread waits for its first byte."""
    ends, over = list[Callable[[], None]](), Event()

    @contextmanager
    def ending(end: Callable[[], None]) -> Iterator[None]:
        with image.ending(end):
            ends.append(end)
            if over.is_set():
                end()
            yield

    with ExitStack() as opened, ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(opened.enter_context, image.saved(image.identity, ending))
        finally:
            over.set()
            for end in ends:
                end()


@contextmanager
def _loaded(engine: Engine, diff_ids: Sequence[str]) -> Iterator[str]:
    """Give the engine an image of layers that it has, and yield its id; it is removed when the block ends.

    It has no name, so `docker image prune` removes it after a killed push. The same layers make the same id.

    Raises:
        SlipwayError: the engine does not take it, or not in time.
    """
    config = json.dumps({"os": "linux", "rootfs": {"type": "layers", "diff_ids": list(diff_ids)}}).encode()
    identity = f"sha256:{hashlib.sha256(config).hexdigest()}"
    manifest = [{"Config": "config.json", "RepoTags": None, "Layers": list(diff_ids)}]
    archive = image_archive({"config.json": config, "manifest.json": json.dumps(manifest).encode()})
    try:
        # It cannot be ended: an engine would go on, and make the image after its removal.
        for message in load(engine, archive, CONNECT_SECONDS):
            if "error" in message:
                raise EngineError(HTTPStatus.OK, str(message["error"]))
        yield identity
    finally:
        with (
            suppress(SlipwayError),
            engine.request("DELETE", f"/images/{identity}", query={"noprune": "1"}, timeout=CONNECT_SECONDS),
        ):
            pass


def _sizes(image: EngineImage) -> list[int]:
    """Return the sizes in bytes of an image's layers; empty where its archive comes at once, or over a network.

    An empty layer is not told from a step without one, so that those above it may stand one place too low.
    """
    if not image.engine.address.host.startswith("unix:"):
        return []
    try:
        # With containerd's store, an archive is written as it is sent (moby v26.1.5, daemon/containerd/service.go).
        if ["driver-type", "io.containerd.snapshotter.v1"] in (image.engine.json("/info").get("DriverStatus") or []):
            return []
        with image.engine.request("GET", f"/images/{image.identity}/history", timeout=CONNECT_SECONDS) as response:
            sizes = [int(step["Size"]) for step in reversed(json.loads(response.text()))]
    except (SlipwayError, *MALFORMED):  # the archive of all layers says what is wrong
        return []
    return [size for size in sizes if size > 0]


def _count(sizes: Sequence[int], wanted: Sequence[bool]) -> int:
    """Return how many of the lowest layers are to come first; 0 if that spares no time."""
    total = sum(sizes)
    if total < _LEAST or len(sizes) > len(wanted):
        return 0
    first = [*itertools.accumulate(size * each for size, each in zip(sizes, wanted, strict=False))]
    count = next(place for place, size in enumerate(first, 1) if size >= _SHARE * first[-1])
    return count if first[-1] and sum(sizes[:count]) <= _MOST * total else 0
