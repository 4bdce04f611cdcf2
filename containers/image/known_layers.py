"""What was read of layers before: an inspection reads each layer of a registry once, whatever images have it.

A layer is known by the digests of its blob and of its archive, and by the code and the tables that read it. What is
kept is this user's: see :mod:`containers.user_cache`.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import zstandard

from containers import budget, user_cache
from containers.errors import MALFORMED, SlipwayError
from containers.image.layers.layer import Facts, LayerIndex
from containers.image.registry_image import Image, Layer
from containers.registry.client import Repository

_KIND: Final = "layer"
_CODE: Final = Path(__file__).parents[1]
_MOST_FILES: Final = 500_000
"""Files of a layer that is kept; in a hostile image there may be millions, in one with torch are 30,000."""
_LARGEST: Final = 64 << 20
"""Bytes of what is kept of a layer, compressed; of an image of 5.96 GB with torch, all layers together have 5 MB."""
_BLOCK: Final = 1 << 20


class ReadLayer(NamedTuple):
    """What was read of a layer, and the bytes of its blob; ``key`` is empty for what is not to be kept."""

    content: LayerIndex
    size: int
    key: str = ""


def read(image: Image, layer: Layer, facts: Facts) -> ReadLayer:
    """Return what ``facts`` finds in a layer of an image, or found in it before.

    Raises SlipwayError: the layer cannot be downloaded, or is corrupt.
    """
    if not isinstance(image.repository, Repository):  # the files of this machine are read as they are now
        return ReadLayer(image.index(layer, facts), layer.size)
    key = _key(layer, facts)
    known = _known(key)
    if known and known.size == layer.size:
        with suppress(SlipwayError):  # then the layer is read, and the error is that of its download
            if image.repository.blob_size(layer.digest) == known.size:
                budget.current(image.reference).credit(known.size)
                return known
    return ReadLayer(image.index(layer, facts), layer.size, key)


def keep(layers: Sequence[ReadLayer]) -> None:
    """Keep the findings in layers, for the next images that have them. What does not fit is left out."""
    with budget.uncounted():
        for layer in layers:
            if layer.key and len(layer.content.entries) <= _MOST_FILES:
                with suppress(MemoryError, zstandard.ZstdError, RecursionError):
                    content = io.BytesIO()
                    with zstandard.ZstdCompressor(1).stream_writer(content, closefd=False) as packed:
                        pickle.dump((layer.size, vars(layer.content)), cast("IO[bytes]", packed), 5)
                    if content.tell() <= _LARGEST:
                        user_cache.keep_content(_KIND, layer.key, content.getvalue())


def _known(key: str) -> ReadLayer | None:
    content = user_cache.content(_KIND, key)
    if content is None:
        return None
    try:
        with zstandard.ZstdDecompressor().stream_reader(content) as packed:
            size, index = _Unpickler(io.BufferedReader(packed, _BLOCK)).load()
        return ReadLayer(LayerIndex(**index), size)
    except (*MALFORMED, EOFError, MemoryError, pickle.UnpicklingError, zstandard.ZstdError):  # then the layer is read
        return None


class _Unpickler(pickle.Unpickler):
    """Reads values of the classes of an inspection, and of nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class. Raises UnpicklingError: it is another one."""
        if module.startswith("containers.image.") or (module, name) in _CLASSES:
            value = super().find_class(module, name)
            if isinstance(value, type) or (module, name) in _CLASSES:
                return value
        raise pickle.UnpicklingError(f"{module}.{name} is not what an inspection keeps")


_CLASSES: Final = {("array", "_array_reconstructor"), ("array", "array")}


def _key(layer: Layer, facts: Facts) -> str:
    what = [layer.digest, layer.diff_id, layer.media_type, f"{facts.__module__}.{facts.__qualname__}", _code()]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@cache
def _code() -> str:
    """Return what decides the result beside the layer: this library with its tables, and what it runs on."""
    digest = hashlib.sha256(f"{sys.version} {zstandard.__version__}".encode())
    for file in sorted(each for each in _CODE.rglob("*") if each.suffix in {".py", ".toml"}):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(_CODE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
