"""The push of an image from an engine, with layers that are compressed here, with zstd.

Each layer that the registry lacks is compressed as it arrives from the engine, and pushed meanwhile. What a broken push
has pushed stays in the registry, and the next one finds it there. The image's configuration is the engine's own, so the
engine knows the pushed image by its digest without pulling a layer.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import IO, Any, Final, NamedTuple, cast

from containers.blob import DIGEST, LIMIT, BlobUnreadable
from containers.engine import image_files
from containers.engine.image_files import EngineImage
from containers.engine.pushed_layers import PushedBlob, PushedLayers
from containers.errors import MALFORMED, SlipwayError
from containers.image.layers import layer, zstd_layer
from containers.image.local_image import is_document, layer_type
from containers.registry.client import IMAGES, PUSH_REASONS, Repository
from containers.registry.credentials import Login
from containers.registry.reference import Reference

_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_PUSHES: Final = 3
"""Layers that are pushed at once. So many more may wait on the disk of this machine, compressed."""
_BLOCK: Final = 1 << 17
_PAUSE: Final = 0.5
"""Seconds after which a wait looks for what has failed, or was cancelled."""
_REFUSED: Final = dict.fromkeys(
    (400, 404, 405, 406, 415, 422),
    "the registry does not take an OCI image whose layers are compressed with zstd, or has a tag that must not move; "
    "where it takes none, leave slipway:compression out",
)
"""Statuses of a manifest that a registry refuses."""


class Pushed(NamedTuple):
    """The digests of a pushed image's manifest and configuration, and a line about each thing that delayed the push."""

    digest: str
    config: str
    delays: Sequence[str]


def push(
    image: EngineImage, reference: str, level: int, login: Login | None, folder: Path, progress: Callable[[str], None]
) -> Pushed:
    """Push an image to ``repository:tag``.

    ``folder`` has the records of earlier pushes. ``progress`` takes a line at each step, and may raise to end the push.

    Raises SlipwayError: the engine's archive is not the image's, or the registry refuses something or does not respond.
    """
    named, failed = Reference.of(reference), Event()

    def going(line: str) -> None:
        if failed.is_set():
            raise SlipwayError("the push has ended")
        progress(line)

    repository = Repository(reference, login, reasons=PUSH_REASONS, progress=going)
    records = PushedLayers(folder, zstd_layer.method(level))
    work = _Push(image, repository, named.host, named.path, records, going, failed)
    work.find()
    if not work.complete:
        work.read(level)
    digest = work.finish(named.tag)
    return Pushed(digest, work.known[image.identity].digest, [*work.delays, *repository.waits])


@dataclass
class _Push:
    """One push: what the registry has, by diff id, and the configuration by the image's id."""

    image: EngineImage
    repository: Repository
    host: str
    path: str
    records: PushedLayers
    progress: Callable[[str], None]
    failed: Event
    known: dict[str, PushedBlob] = field(default_factory=dict)
    delays: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.known.keys() >= {self.image.identity, *self.image.diff_ids}

    def find(self) -> None:
        """Find what the registry has, by the records of earlier pushes."""
        for content in dict.fromkeys((*self.image.diff_ids, self.image.identity)):
            self.progress("Asking the registry for layers")
            blob = self.records.blob(content)
            if blob and (self.repository.blob_size(blob.digest) == blob.size or self._mounted(blob)):
                self._keep(content, blob)

    def read(self, level: int) -> None:
        """Read the engine's archive as far as something is missing, and push that."""
        slots, pushes = BoundedSemaphore(2 * _PUSHES), list[Future[None]]()
        threads = ThreadPoolExecutor(_PUSHES)
        try:
            for content, file, blob in self._missing(level, slots, pushes):
                pushes.append(threads.submit(self._push, content, file, blob, slots))
            while not self._ended(pushes):
                self.progress("Pushing layers")
        except BaseException:
            self.failed.set()
            raise
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # a registry that says nothing is not waited for

    def finish(self, tag: str) -> str:
        """Push the manifest, under its digest and the tag; return its digest."""
        missing = [content for content in self.image.diff_ids if content not in self.known]
        if missing or self.image.identity not in self.known:
            what = f"layer {missing[0]}" if missing else f"configuration of {self.image.identity}"
            raise SlipwayError(f"{self.repository.reference}: the engine's archive lacks the {what}")
        manifest = {
            "schemaVersion": 2,
            "mediaType": IMAGES[0],
            "config": _descriptor(_CONFIG, self.known[self.image.identity]),
            "layers": [_descriptor(zstd_layer.MEDIA_TYPE, self.known[each]) for each in self.image.diff_ids],
        }
        body = json.dumps(manifest, separators=(",", ":")).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.progress("Pushing the manifest")
        # A registry with immutable tags may refuse even the digest that a tag has.
        if self.repository.visible_digest() != digest:
            self.repository.put(tag, body, IMAGES[0], _REFUSED)
        return digest

    def _missing(
        self, level: int, slots: BoundedSemaphore, pushes: Iterable[Future[None]]
    ) -> Iterator[tuple[str, IO[bytes], PushedBlob]]:
        """Yield what the archive has and the registry lacks: what it is, and a file with its blob.

        A layer takes a slot, which its push gives back. It does before the engine opens the next one, which locks the
        container that it is read through: `docker inspect` of that waits.
        """
        left = {self.image.identity, *self.image.diff_ids} - self.known.keys()
        self.progress("Reading the image from the Docker daemon")
        self._take(slots, pushes)
        try:
            with closing(image_files.files(self.image, left, self.delays.append)) as files:
                for each in files:
                    if self._has(each.digest):
                        continue
                    start = each.content.peek(tarfile.BLOCKSIZE)
                    document = each.size is not None and is_document(start, each.size)
                    if document:
                        text = each.content.read(LIMIT)
                        if self.image.identity not in left or not self._is_configuration(text):
                            continue
                        what, file, blob = self.image.identity, *_as_blob(text)
                    else:
                        what, file, blob = self._compressed(each.content, layer_type(start), level)
                        if DIGEST.fullmatch(each.digest) and each.digest != what:  # containerd: that of its gzip
                            self.records.add(each.digest, blob, f"{self.host}/{self.path}")
                        if what not in left:  # an engine of 20.10 names no layer by its digest
                            file.close()
                            continue
                    left.discard(what)
                    yield what, file, blob
                    if not left:  # the engine may send gigabytes more
                        return
                    if not document:
                        self._take(slots, pushes)
        except BlobUnreadable as error:
            raise SlipwayError(f"{self.repository.reference}: no archive of `docker save`: {error}") from None

    def _take(self, slots: BoundedSemaphore, pushes: Iterable[Future[None]]) -> None:
        """Wait for a slot. Raises the error of a push that failed."""
        while not slots.acquire(timeout=_PAUSE):
            self._ended(pushes)

    def _has(self, name: str) -> bool:
        """Return whether the registry has the layer that an engine's archive has under a name."""
        record = None if name in self.known or not DIGEST.fullmatch(name) else self.records.blob(name)
        return name in self.known or bool(record and record.digest in {each.digest for each in self.known.values()})

    def _ended(self, pushes: Iterable[Future[None]]) -> bool:
        """Return whether all pushes have ended, after a pause where they have not; one that failed ends the others."""
        ended, left = wait(pushes, _PAUSE, FIRST_EXCEPTION)
        for each in ended:
            each.result()
        return not left

    def _is_configuration(self, text: bytes) -> bool:
        """Return whether a document is the image's configuration.

        Its digest does not tell: with containerd's store the id is the digest of the manifest, which is saved too.
        """
        try:
            return list(json.loads(text)["rootfs"].get("diff_ids") or []) == list(self.image.diff_ids)
        except MALFORMED:
            return False

    def _compressed(self, content: IO[bytes], kind: str, level: int) -> tuple[str, IO[bytes], PushedBlob]:
        file = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - its push closes it
        archive = cast("IO[bytes]", _Watched(layer.decompressed(content, kind), self.progress))
        try:
            compressed = zstd_layer.compress(archive, file, level)
        except OSError as error:
            folder = tempfile.gettempdir()
            raise SlipwayError(
                f"{self.repository.reference}: a compressed layer cannot be written in {folder}: {error.strerror}; let "
                "TMPDIR name a folder with more free space"
            ) from None
        return compressed.diff_id, file, PushedBlob(compressed.digest, compressed.size)

    def _push(self, content: str, file: IO[bytes], blob: PushedBlob, slots: BoundedSemaphore) -> None:
        try:
            with file:
                body = _Body(file, blob, self.progress)
                self.repository.push_blob(blob.digest, blob.size, cast("IO[bytes]", body))
            self._keep(content, blob)
        finally:
            if content != self.image.identity:
                slots.release()

    def _keep(self, content: str, blob: PushedBlob) -> None:
        self.known[content] = blob
        self.records.add(content, blob, f"{self.host}/{self.path}")

    def _mounted(self, blob: PushedBlob) -> bool:
        """Return whether the registry has a blob of another repository in this one now."""
        others = [name.removeprefix(f"{self.host}/") for name in blob.repositories if name.startswith(f"{self.host}/")]
        with suppress(SlipwayError):  # this login may not read the other repository
            return any(self.repository.mount_blob(blob.digest, path) for path in reversed(others) if path != self.path)
        return False


def _descriptor(media_type: str, blob: PushedBlob) -> Mapping[str, Any]:
    return {"mediaType": media_type, "digest": blob.digest, "size": blob.size}


def _as_blob(text: bytes) -> tuple[IO[bytes], PushedBlob]:
    return BytesIO(text), PushedBlob(f"sha256:{hashlib.sha256(text).hexdigest()}", len(text))


class _Watched:
    """An archive that says how much of it was read."""

    def __init__(self, archive: IO[bytes], progress: Callable[[str], None]) -> None:
        self._archive, self._progress, self._count = archive, progress, 0

    def read(self, size: int) -> bytes:
        content = self._archive.read(size)
        self._count += len(content)
        self._progress(f"Compressing a layer: {self._count / 1e6:.0f} MB")
        return content


class _Body:
    """A blob as the body of a request, which says how much of it was read."""

    def __init__(self, file: IO[bytes], blob: PushedBlob, progress: Callable[[str], None]) -> None:
        self._file, self._blob, self._progress = file, blob, progress

    def __len__(self) -> int:
        return self._blob.size

    def __iter__(self) -> Iterator[bytes]:  # so that requests takes it for a stream
        while block := self.read(_BLOCK):
            yield block

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int) -> int:
        return self._file.seek(place)

    def read(self, size: int) -> bytes:
        content = self._file.read(max(size, _BLOCK))
        name, total = self._blob.digest[7:19], self._blob.size / 1e6
        self._progress(f"Pushing {name}: {self._file.tell() / 1e6:.0f} of {total:.0f} MB")
        return content
