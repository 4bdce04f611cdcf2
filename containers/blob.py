"""A blob of an image: its bytes as they are read, wherever they come from, and the check of its digest."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from typing import IO, Any, Final, TypeVar, cast

from containers import budget
from containers.budget import Budget
from containers.errors import SlipwayError

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""A digest. What a manifest calls one may be any text, such as a path, until it matches."""

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""An escape in a text of JSON; the group is half of a character, alone."""
LIMIT: Final = 4 << 20
"""Bytes of the largest manifest or other document: the limit that the specification names for manifests."""
_BUFFER: Final = 1 << 20
"""Bytes of a blob that are read at once."""

Result = TypeVar("Result")


def parsed(body: bytes) -> Any:
    """Return the content of a JSON document. Raises ValueError or RecursionError: it is none, or nested too deep.

    Python reads `NaN` and `Infinity` too, which are no JSON (RFC 8259, section 6), and engines refuse. Half a character
    is U+FFFD, as for engines (Go 1.24, src/encoding/json/decode.go, `unquoteBytes`): nothing could write it.
    """
    return json.loads(_ESCAPE.sub(lambda match: b"\\ufffd" if match[1] else match[0], body), parse_constant=_refused)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def check_small(name: str, size: int) -> None:
    """Raise SlipwayError: a document has more than 4 MiB, which are read as a whole."""
    if size > LIMIT:
        raise SlipwayError(f"{name}: {size:,} bytes are stated, at most {LIMIT:,} are read")


class BlobUnreadable(Exception):
    """The bytes of a blob do not fit its media type; ``str()`` is the reason."""


def read_blob(
    source: Callable[[int], bytes],
    read: Callable[[IO[bytes]], Result],
    *,
    reference: str,
    digest: str,
    size: int | None = None,
    verify: bool = True,
) -> Result:
    """Stream a blob to ``read``, check its digest, and return the result of ``read``.

    ``source`` returns the next bytes, at most as many as it is asked for. ``reference`` names the image in errors.
    ``size`` is what its manifest states, in bytes; engines refuse another one (containerd/containerd 02e0fef,
    plugins/content/local/writer.go, `Commit`). A blob that its image names otherwise than by its digest is not to
    ``verify``.

    Raises SlipwayError: the blob does not have its digest or its size, or is malformed.
    """
    stream = _Hashed(
        source, budget.current(reference), f"{reference}: {digest}", size, hashlib.sha256() if verify else None
    )
    malformed: BlobUnreadable | None = None
    result: Result | None = None
    try:
        result = read(cast("IO[bytes]", io.BufferedReader(stream, _BUFFER)))
    except BlobUnreadable as error:
        malformed = error
    actual = stream.finish()
    if actual and actual != digest:
        raise SlipwayError(f"{reference}: a blob is corrupt: its digest is {actual}, not {digest}")
    if malformed is None and size not in {None, count := stream.tell()}:
        malformed = BlobUnreadable(f"has {count:,} bytes, and its manifest states {size:,}; push the image again")
    if malformed is not None:
        raise SlipwayError(f"{reference}: {digest}: {malformed}")
    return cast("Result", result)


class _Hashed(io.RawIOBase):
    """The bytes of a blob, and their SHA-256."""

    def __init__(self, source: Callable[[int], bytes], left: Budget, name: str, size: int | None, digest: Any) -> None:
        self._source, self._budget = source, left
        self._name, self._size, self._count = name, size, 0
        self._hash = digest

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._count

    def readinto(self, buffer: Any) -> int:
        chunk = self._budget.receive(self._source, len(buffer))
        self._count += len(chunk)
        if self._size is not None and self._count > self._size:
            raise SlipwayError(f"{self._name}: has more bytes than its manifest states, {self._size:,}")
        if self._hash:
            self._hash.update(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def finish(self) -> str:
        """Read the remaining bytes, and return the digest of all; empty if none is wanted."""
        buffer = bytearray(_BUFFER)
        while self.readinto(buffer):
            pass
        return f"sha256:{self._hash.hexdigest()}" if self._hash else ""
