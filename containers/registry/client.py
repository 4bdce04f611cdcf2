"""Manifests, blobs and tags of a repository in a registry (OCI distribution specification).

Every manifest and blob is checked against its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final
from urllib.parse import urlencode, urlsplit

import requests
from urllib3.exceptions import HTTPError

from containers.blob import DIGEST, Result, check_small, parsed, read_blob
from containers.errors import MALFORMED, SlipwayError, one_line
from containers.registry.attempts import BUSY, Attempts
from containers.registry.credentials import Login
from containers.registry.reference import Reference, check_reference
from containers.registry.transport import RegistryUnreachable, Transport, Untrusted, chunk, reason

INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of a list of images, one for each platform."""
IMAGES: Final = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
"""Media types of one image's manifest."""

_BINARY: Final = "application/octet-stream"
_ACCEPT: Final = ", ".join((*INDEXES, *IMAGES))
_UPLOADED_AGAIN: Final = BUSY | {404}
"""Statuses after which a blob is pushed again. With 404, a registry has forgotten the upload (BLOB_UPLOAD_UNKNOWN)."""
_PAGE: Final = "text/html"
_ABSENT: Final = (401, 403, 404)
"""Statuses by which registries report what is missing or hidden."""
_BLOB_UNKNOWN: Final = "MANIFEST_BLOB_UNKNOWN"
_MOST_TAGS: Final = 1_000_000
"""Tags of one repository; more come from a registry that lists without end."""
_MOST_PAGES: Final = 10_000
"""Pages of such a list; registries put a hundred tags on one, or a thousand."""

_REASONS: Final = {
    404: "no such image, tag or digest in the registry; it may have been deleted",
    429: "the registry's request limit is reached; try again later",
}
_PULL_REASONS: Final = _REASONS | dict.fromkeys(
    (401, 403), "the registry requires a login with pull access; run `docker login {host}`"
)
PUSH_REASONS: Final = _REASONS | dict.fromkeys(
    (401, 403), "the registry rejected the login, or the login has no push access; check slipway:registry's credentials"
)
_UPLOAD_REASONS: Final = {
    404: "the registry has no such repository, or has forgotten the upload; create the repository, or try again",
    413: "the registry, or a proxy before it, takes no blob this large; raise its limit (nginx: client_max_body_size)",
}
"""More of them for the upload of a blob."""


@dataclass(frozen=True)
class Manifest:
    """A manifest: its digest ``sha256:...``, its parsed content, and its bytes."""

    digest: str
    media_type: str
    content: Mapping[str, Any]
    body: bytes = field(repr=False)


def digest(reference: str) -> str:
    """Return the digest, ``sha256:...``, of a reference's tag; for several platforms, of their index.

    Raises SlipwayError: the tag does not exist, or the registry does not respond.
    """
    return Repository(reference).digest()


def tag(reference: str, name: str, login: Login | None) -> None:
    """Tag an image as ``name``; an existing tag moves, if the registry allows it.

    Raises SlipwayError: the image does not exist, the login is rejected, or the registry does not respond.
    """
    Repository(reference, login, reasons=PUSH_REASONS).tag(name)


class Repository:
    """One repository of a registry, and the tag or digest in it that a reference names.

    ``login`` is used if it is for this registry; else the machine's own login. ``reasons`` explain error statuses.
    ``scheme``, ``verify`` and ``progress`` are those of :class:`~containers.registry.transport.Transport`.

    Raises SlipwayError: ``reference`` has no tag and no digest.
    """

    def __init__(
        self,
        reference: str,
        login: Login | None = None,
        reasons: Mapping[int, str] | None = None,
        *,
        scheme: str = "",
        verify: bool = True,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.reference = reference
        self._reasons = reasons or _PULL_REASONS
        try:
            check_reference(reference)
        except ValueError as error:
            raise SlipwayError(f"'{one_line(reference)}': {error}") from None
        named = Reference.of(reference)
        self.host, self._version = named.host, named.version
        applicable = login if login and login.applies_to(reference) else None
        self._transport = Transport(
            reference, self.host, named.path, applicable, scheme=scheme, verify=verify, progress=progress
        )

    @property
    def waits(self) -> list[str]:
        """A line about each request that a busy registry was sent again, and then answered."""
        return self._transport.waits

    def end(self) -> None:
        """As :meth:`containers.registry.transport.Transport.end`."""
        self._transport.end()

    def digest(self) -> str:
        """Return the digest of what the reference names.

        Raises SlipwayError: it does not exist, or the registry does not respond.
        """
        with self._request("HEAD", f"manifests/{self._version}", self._version) as response:
            return self._named(response, self._version)

    def visible_digest(self) -> str | None:
        """Return the digest of what the reference names; None if it does not exist or this login may not see it.

        Some registries answer 401 or 403 for a repository that does not exist yet.

        Raises SlipwayError: the registry rejects the login, responds with another error, or does not respond.
        """
        return self._visible(self._version)

    def exists(self) -> bool:
        """Return whether the registry has what the reference names.

        Raises SlipwayError: the registry responds with an error other than 404, or does not respond.
        """
        path = f"manifests/{self._version}"
        with self._request("HEAD", path, self._version, passed=(requests.codes.not_found,)) as response:
            return response.ok and bool(self._named(response, self._version))

    def manifest(self) -> Manifest:
        """Return the manifest that the reference names.

        Raises SlipwayError: it does not exist, does not have its digest, or the registry does not respond.
        """
        return self._manifest(self._version)

    def tags(self) -> list[str]:
        """Return all tags of the repository, page by page (distribution specification, "Listing Tags").

        Raises SlipwayError: there is no such repository, the registry does not respond, or it lists more than a million
        tags or ten thousand pages.
        """
        names: list[str] = []
        query, requested = "n=1000", set[str]()
        while query and query not in requested:
            requested.add(query)
            with self._request("GET", f"tags/list?{query}", self._version) as response:
                page = self._parsed(self._transport.body(response), "the list of tags").get("tags") or []
                if not isinstance(page, list) or not all(isinstance(name, str) for name in page):
                    raise SlipwayError(f"{self.reference}: the list of tags has something else than names")
                names += page
                if len(names) > _MOST_TAGS or len(requested) > _MOST_PAGES:
                    raise SlipwayError(
                        f"{self.reference}: the list of tags is too long: {self.host} lists more than {_MOST_TAGS:,} "
                        f"tags or {_MOST_PAGES:,} pages; delete tags, or name another repository"
                    )
                if not page:  # a next page after an empty one never ends
                    break
                query = self._next_page(response)
        return names

    def _next_page(self, response: requests.Response) -> str:
        """Return the query of the next page of a list; an empty text if there is none."""
        url = response.links.get("next", {}).get("url", "")
        try:
            return urlsplit(url).query
        except ValueError:
            raise SlipwayError(f"{self.reference}: '{one_line(url)}' is no address of further tags") from None

    def tag(self, name: str) -> None:
        """Tag what the reference names as ``name`` too.

        Raises SlipwayError: as for :meth:`manifest`, or the registry rejects the tag.
        """
        manifest = self.manifest()
        self.put(name, manifest.body, manifest.media_type)

    def put(self, version: str, body: bytes, media_type: str, reasons: Mapping[int, str] | None = None) -> None:
        """Push a manifest under ``version``, its digest or a tag. ``reasons`` explain more error statuses.

        Raises SlipwayError: the registry rejects the manifest or the tag, keeps another one, or does not respond.
        """
        expected = f"sha256:{hashlib.sha256(body).hexdigest()}"
        attempts = self._transport.attempts()
        with self._transport.request("PUT", f"manifests/{version}", _ACCEPT, body, media_type, attempts) as response:
            # The first attempt may have worked. A registry with immutable tags refuses the next one.
            with suppress(SlipwayError):  # the refusal itself says more
                if attempts.count > 1 and not response.ok and self._visible(version) == expected:
                    return
            self._check(response, version, self._lacking(response) or reasons, attempts)
            kept = response.headers.get("Docker-Content-Digest", expected)
            if kept != expected:
                raise SlipwayError(
                    f"{self.reference}: {self.host} was sent the manifest {expected} and keeps {one_line(kept)}: in a "
                    "registry that rewrites images neither digests nor signatures hold; name another one"
                )

    def _lacking(self, response: requests.Response) -> Mapping[int, str]:
        """Return why a registry refuses a manifest whose blobs it lacks (distribution-spec, spec.md, "Error Codes")."""
        with suppress(SlipwayError, *MALFORMED):
            if not response.ok and parsed(self._transport.body(response))["errors"][0]["code"] == _BLOB_UNKNOWN:
                return {response.status_code: "the registry has lost a layer of the image; publish the image again"}
        return {}

    def blob_size(self, digest: str) -> int | None:
        """Return the bytes of a blob; None if the registry does not have it, or does not show it to this login.

        Raises SlipwayError: the registry responds with another error, or does not respond.
        """
        with self._request("HEAD", f"blobs/{digest}", digest, passed=_ABSENT) as response:
            if not response.ok or response.headers.get("Docker-Content-Digest", digest) != digest:
                return None
            size = response.headers.get("Content-Length", "")
            return int(size) if size.isdecimal() else None

    def mount_blob(self, digest: str, path: str) -> bool:
        """Let the repository have a blob of the one at ``path`` in this registry; return whether it has it now.

        Raises SlipwayError: the registry responds with an error, or does not respond.
        """
        query = urlencode({"mount": digest, "from": path})
        with self._request("POST", f"blobs/uploads/?{query}", digest, b"", _BINARY) as response:
            return bool(response.status_code == requests.codes.created)

    def push_blob(self, digest: str, size: int, file: IO[bytes]) -> None:
        """Push a blob of a size from a file, unless the registry has it. After a broken connection it is pushed again.

        Raises SlipwayError: the registry rejects it, or does not respond.
        """
        attempts = self._transport.attempts()
        while self.blob_size(digest) != size:
            with self._request("POST", "blobs/uploads/", digest, b"", _BINARY, _UPLOAD_REASONS) as response:
                location = response.headers.get("Location", "")
            place = f"{location}{'&' if '?' in location else '?'}{urlencode({'digest': digest})}"
            try:
                with self._transport.request("PUT", place, _ACCEPT, file, _BINARY) as response:
                    if not attempts.again(response, _UPLOADED_AGAIN):
                        self._check(response, digest, _UPLOAD_REASONS, attempts)
                        break
            except Untrusted:
                raise
            except RegistryUnreachable:
                if not attempts.again(None):
                    raise
        self.waits.extend(filter(None, [attempts.summary]))

    def blob(self, digest: str, read: Callable[[IO[bytes]], Result], size: int | None = None) -> Result:
        """Stream a blob to ``read``, check the blob's digest, and return the result of ``read``.

        ``size`` is what a manifest states of the blob, in bytes. If the connection breaks, ``read``
        is called again from the first byte. It raises :class:`BlobUnreadable` for malformed content.

        Raises SlipwayError: the blob does not exist, does not have its digest or its size, is malformed, or the
        registry does not respond.
        """
        if not DIGEST.fullmatch(digest):
            raise SlipwayError(f"{self.reference}: '{one_line(digest)}' is no digest of a blob")
        attempts = self._transport.attempts()
        while True:
            try:
                return self._blob(digest, read, size)
            except (HTTPError, requests.RequestException, OSError) as error:
                if not attempts.again(None):
                    where = f"{self.reference}: {digest}"
                    raise SlipwayError(f"{where}: connection to {self.host} broke: {reason(error)}") from None

    def json(self, digest: str, size: int) -> dict[str, Any]:
        """Return a small blob that is a JSON object, such as an image's configuration; ``size`` as for :meth:`blob`.

        Raises SlipwayError: as for :meth:`blob`, or it has more than 4 MiB.
        """
        check_small(f"{self.reference}: {one_line(digest)}", size)
        body = self.blob(digest, lambda stream: stream.read(), size)
        return self._parsed(body, digest)

    def _visible(self, version: str) -> str | None:
        with self._request("HEAD", f"manifests/{version}", version, passed=_ABSENT) as response:
            if not response.ok:
                if self._transport.refused and response.status_code == requests.codes.unauthorized:
                    self._check(response, version)
                return None
            return self._named(response, version)

    def _named(self, response: requests.Response, version: str) -> str:
        """Return the digest that a HEAD's answer states; the specification lets a registry leave it out."""
        if "Docker-Content-Digest" not in response.headers:
            return self._manifest(version).digest
        value = response.headers["Docker-Content-Digest"]
        if not DIGEST.fullmatch(value):
            raise SlipwayError(f"{self.reference}: {self.host} sends no valid digest, but '{one_line(value)}'")
        if DIGEST.fullmatch(version) and value != version:
            raise SlipwayError(f"{self.reference}: {self.host} sends another manifest, {value}")
        return value

    def _manifest(self, version: str) -> Manifest:
        """Return a manifest, whose digest is checked."""
        with self._request("GET", f"manifests/{version}", version) as response:
            body = self._transport.body(response)
            actual = f"sha256:{hashlib.sha256(body).hexdigest()}"
            stated = response.headers.get("Docker-Content-Digest", actual)
            expected = version if DIGEST.fullmatch(version) else stated
            if actual != expected:
                raise SlipwayError(
                    f"{self.reference}: the manifest is corrupt: its digest is {actual}, not {one_line(expected)}"
                )
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        content = self._parsed(body, "the manifest")
        if media_type not in (*INDEXES, *IMAGES) and "schemaVersion" not in content:
            raise SlipwayError(f"{self.reference}: {self.host} sends no manifest, but '{one_line(media_type)}'")
        return Manifest(actual, content.get("mediaType") or media_type, content, body)

    def _blob(self, digest: str, read: Callable[[IO[bytes]], Result], size: int | None) -> Result:
        # Its digest judges it, not its type: gcr.io has sent a layer as text/html (issue 19 of
        # TritonDataCenter/node-docker-registry-client).
        with self._request("GET", f"blobs/{digest}", digest, passed=(requests.codes.ok,)) as response:
            source = partial(chunk, response.raw.read, decode_content=False)
            return read_blob(source, read, reference=self.reference, digest=digest, size=size)

    def _request(
        self,
        method: str,
        path: str,
        version: str,
        body: bytes | None = None,
        media_type: str = "",
        reasons: Mapping[int, str] | None = None,
        passed: Collection[int] = (),
    ) -> requests.Response:
        """Return the response to a request for ``version``, a tag or digest, which names it in errors.

        ``passed`` are statuses that are returned without a check.
        """
        attempts = self._transport.attempts()
        response = self._transport.request(method, path, _ACCEPT, body, media_type, attempts)
        if response.status_code not in passed:
            self._check(response, version, reasons, attempts)
        return response

    def _check(
        self,
        response: requests.Response,
        version: str,
        reasons: Mapping[int, str] | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        name = "" if version == self._version else f" {version}:"
        if not response.ok:
            response.close()
            known = {**self._reasons, **(reasons or {})}
            explanation = known.get(response.status_code, "the registry responds with an error")
            said = f", {attempts.said}" if attempts and attempts.said else ""
            explained = explanation.format(host=self.host)
            raise SlipwayError(f"{self.reference}:{name} {explained} ({response.status_code}){said}")
        # Some answer a push with an empty page, and 201 or 202. No page of a login states a digest.
        is_page = response.headers.get("Content-Type", "").startswith(_PAGE)
        if is_page and response.status_code == requests.codes.ok and "Docker-Content-Digest" not in response.headers:
            response.close()
            raise SlipwayError(
                f"{self.reference}:{name} {self.host} answers with a web page, as a login does; check the registry's "
                "address, and what this machine's proxy lets through"
            )

    def _parsed(self, body: bytes, name: str) -> dict[str, Any]:
        try:
            content = parsed(body)
        except (ValueError, RecursionError):  # nested too deep
            content = None
        if not isinstance(content, dict):
            raise SlipwayError(f"{self.reference}: {name} is not a JSON object")
        return content
