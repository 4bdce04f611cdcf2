"""The configuration and the layers' archives of an image that an engine holds: those that are wanted, one by one.

`docker save` of an engine without containerd's store of images writes the archives of all layers to the engine's disk
before its first byte (moby v26.1.5, image/tarexport/save.go: `save`). The engine has each layer as a folder of its
files, which it names, and beside it what else is in the archive: headers and padding, in order (v20.10.24, v26.1.5,
v28.5.2, layer/filestore.go: `TarSplitWriter`; tar-split v0.11.5, tar/asm/assemble.go: `WriteOutputTarStream`). So a
container that never runs has both mounted, and `docker cp` gives them. The engine lists a folder's files in the order
in which it wrote them into the archive. Whatever does not fit ends an archive early, and so shows in its digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import itertools
import json
import os
import posixpath
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Any, Final, NamedTuple, Self, cast

from containers.blob import BlobUnreadable
from containers.engine.connection import CONNECT_SECONDS
from containers.engine.engine import Ending, Engine, EngineError
from containers.errors import MALFORMED, SlipwayError
from containers.image.layers import layer

_FOLDER: Final = "/.slipway"
"""Where the container has what is mounted."""
_BLOCK: Final = 1 << 17
_LONGEST: Final = 4 << 20
"""Bytes of a line of an archive's headers: of padding, tar-split has 1 MiB in one, as base64."""
_MOST: Final = 1 << 28
"""Bytes of all headers of an archive, compressed."""
_ATTEMPTS, _PAUSE = 3, 0.5
"""Of removing a container, and the seconds after each."""
_FILE, _SEGMENT = 1, 2
"""Types of entries of tar-split (tar/storage/entry.go)."""
_FULL: Final = re.compile("no space left|disk quota exceeded", re.IGNORECASE)
"""In an engine's error: the words of ENOSPC and EDQUOT in Go (syscall/zerrors_linux_amd64.go)."""


class ImageFile(NamedTuple):
    """A file of an image: its name, its size in bytes where that is known, and its content."""

    name: str
    size: int | None
    content: io.BufferedReader

    @property
    def digest(self) -> str:
        """The digest that its name has: of a blob, or of ``<digest>.json``, an image's configuration."""
        return f"sha256:{posixpath.basename(self.name.removeprefix('sha256:')).removesuffix('.json')}"


@dataclass(frozen=True)
class EngineImage:
    """An image as its engine names it: its id, and the digests of its layers' archives, the lowest first.

    ``driver`` is what the engine says of where it has them. ``ending`` opens a block in which another thread may end a
    request of the engine.
    """

    identity: str
    diff_ids: Sequence[str]
    engine: Engine
    driver: Mapping[str, Any]
    ending: Ending = lambda _: nullcontext()

    @classmethod
    def held(cls, identity: str, engine: Engine, ending: Ending = lambda _: nullcontext()) -> Self:
        """Return an image that an engine holds, by its id. Raises SlipwayError: the engine does not describe it."""
        described = engine.json(f"/images/{identity}/json")
        layers = (described.get("RootFS") or {}).get("Layers") or []
        diff_ids = [each for each in layers if isinstance(each, str)]
        return cls(identity, diff_ids, engine, described.get("GraphDriver") or {}, ending)


def disk_full(error: SlipwayError) -> bool:
    """Return whether an error is the engine's, and says that its disk is full."""
    return isinstance(error, EngineError) and _FULL.search(str(error)) is not None


def files(image: EngineImage, wanted: Set[str], note: Callable[[str], None]) -> Generator[ImageFile]:
    """Yield an image's configuration and layers, and perhaps more, each to be read before the next.

    ``wanted`` are the image's id and diff ids; what was read is to be taken out of it. While something is left, files
    of the archive of `docker save` follow. ``note`` takes a line if they do though the engine has a folder of each.

    Raises:
        SlipwayError: the engine cannot save the image; also while a file is read.
        BlobUnreadable: the archive is malformed.
    """
    failure = ""
    try:
        if store := _store(image):
            yield from _kept(image, *store, wanted)
            failure = "not each has its digest"
    except (SlipwayError, BlobUnreadable, *layer.MALFORMED, *MALFORMED) as error:
        failure = str(error)
    if not wanted:
        return
    if failure:
        note(f"the Docker daemon wrote the archive of all layers, as it did not give them one by one: {failure}")
    with image.engine.request("GET", f"/images/{image.identity}/get", ending=image.ending) as stream:
        yield from _members(cast("IO[bytes]", stream))


def _store(image: EngineImage) -> tuple[str, Sequence[str]] | None:
    """Return the folder of an engine's store, and those of an image's layers in order; None where it has none.

    Behind a stack's own socket may be several engines: each request could go to another one.
    """
    host = image.engine.address.host
    if host.startswith("unix://") and not host.startswith("unix:///"):
        return None
    data: Mapping[str, str] = image.driver.get("Data") or {}
    if "UpperDir" not in data:
        return None
    folders = [data["UpperDir"], *filter(None, data.get("LowerDir", "").split(os.pathsep))]
    return f"{image.engine.json('/info')['DockerRootDir']}/image/{image.driver['Name']}", folders[::-1]


def _kept(image: EngineImage, store: str, folders: Sequence[str], wanted: Set[str]) -> Iterator[ImageFile]:
    """Yield the files of an image that an engine without containerd's store has."""
    chains = itertools.accumulate(image.diff_ids, lambda below, diff_id: _digest(f"{below} {diff_id}"))
    layers = [each for each in zip(image.diff_ids, chains, folders, strict=True) if each[0] in wanted]
    with _container(image, {"store": store, **{diff_id[7:]: folder for diff_id, _, folder in layers}}) as copied:
        if image.identity in wanted:
            with copied(f"store/imagedb/content/{_path(image.identity)}") as members:
                yield from members
        for diff_id, chain, _ in layers:
            if diff_id not in wanted:  # an equal layer was lower
                continue
            with copied(f"store/layerdb/{_path(chain)}/tar-split.json.gz") as members:
                split = b"".join(each.content.read(_MOST) for each in members)
            with copied(f"{diff_id[7:]}/.") as members:
                pieces = _Pieces(_archive(split, members))
                yield ImageFile(diff_id, None, io.BufferedReader(pieces, _BLOCK))


_Copied = Callable[[str], AbstractContextManager[Iterator[ImageFile]]]
"""Opens a block with the files below a path of a container."""


@contextmanager
def _container(image: EngineImage, mounts: Mapping[str, str]) -> Iterator[_Copied]:
    """Create a container of an image with folders of its engine mounted, and yield how to read these.

    After a push that was killed, `docker container prune` removes it, or the engine when it starts (moby v20.10.24,
    v26.1.5, v28.5.2, daemon/daemon.go: `restore`).
    """
    volumes = [
        {"Type": "bind", "Source": folder, "Target": f"{_FOLDER}/{name}", "ReadOnly": True}
        for name, folder in mounts.items()
    ]
    host = {"Mounts": volumes, "NetworkMode": "none", "AutoRemove": True}
    settings = {"Image": image.identity, "Cmd": ["-"], "HostConfig": host}
    path = f"/containers/{image.engine.json('/containers/create', settings)['Id']}"

    @contextmanager
    def copied(name: str) -> Iterator[Iterator[ImageFile]]:
        query = {"path": f"{_FOLDER}/{name}"}
        with image.engine.request("GET", f"{path}/archive", query=query, ending=image.ending) as stream:
            yield _members(cast("IO[bytes]", stream))

    try:
        yield copied
    finally:
        _remove(image.engine, path)


def _remove(engine: Engine, path: str) -> None:
    """Remove a container. An engine may refuse that at first: the mounts of one that was just read may be in use."""
    for _ in range(_ATTEMPTS):
        try:
            with engine.request("DELETE", path, query={"force": "1", "v": "1"}, timeout=CONNECT_SECONDS):
                return
        except EngineError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return
        except SlipwayError:
            pass
        time.sleep(_PAUSE)


def _members(stream: IO[bytes]) -> Iterator[ImageFile]:
    """Yield the files of an archive, each to be read before the next."""
    with layer.opened(stream, "tar") as archive:
        for member in layer.members(archive):
            if member.isfile():
                content = cast("io.BufferedReader", archive.extractfile(member))
                yield ImageFile(layer.normal(member.name), member.size, content)


def _archive(split: bytes, contents: Iterator[ImageFile]) -> Iterator[bytes]:
    """Yield the archive of a layer, by what tar-split kept of it and the contents of its files."""
    with suppress(BlobUnreadable, *layer.MALFORMED, *MALFORMED):
        lines = gzip.GzipFile(fileobj=io.BytesIO(split))
        while line := lines.readline(_LONGEST):
            entry = json.loads(line)
            if entry["type"] == _SEGMENT:
                yield base64.b64decode(entry["payload"])
            elif entry["type"] == _FILE and entry.get("size"):
                raw = base64.b64decode(entry.get("name_raw", ""))  # of a name that is not UTF-8
                name = layer.normal(os.fsdecode(raw) if raw else entry["name"])
                file = next((each for each in contents if each.name == name), None)
                if file is None or file.size != entry["size"]:
                    return
                while block := file.content.read(_BLOCK):
                    yield block


class _Pieces(io.RawIOBase):
    """A stream of what an iterator yields."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        """Return whether it can be read, which it can."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes into a buffer, and return how many; 0 at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


def _digest(text: str) -> str:
    """Return the digest of a text: that of two digests is the id of a chain of layers (OCI image-spec, config.md)."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _path(digest: str) -> str:
    return digest.replace(":", "/")
