"""What is asked of registries (OCI distribution specification): digests, manifests, blobs, another tag for an image.

A request that is refused for now or gets no answer is made again, with growing waits. Nothing is returned whose bytes
are not those of the digest that names them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final, TypeVar, cast

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from oci import docker_login
from stacks.config.registries.ghcr import GhcrRegistry
from stacks.errors import SlipwayError, one_line
from stacks.references import check_reference, covering, qualified, split

INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of what stands for several images."""
IMAGES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of what describes one image."""

_HOSTS: Final = {"docker.io": "registry-1.docker.io"}
"""Registries whose API answers at another host than their images' names have."""

_SECONDS: Final = (10, 30)
"""How long a registry may take to connect, and then to say something."""
_RETRY: Final = Retry(
    total=3,
    backoff_factor=0.5,
    backoff_max=10,
    retry_after_max=10,
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),
    redirect=10,
    raise_on_status=False,
)
_WAITS: Final = (0.5, 2.0)
"""Seconds before a blob whose connection broke is read anew."""
_MOST: Final = 4 << 20
"""Bytes that a manifest or an answer may have: the limit that the specification names for manifests."""
_BUFFER: Final = 1 << 20

_UNSEEN: Final = (401, 403, 404)
"""How registries answer where there is nothing, or nothing for us."""

_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Read = TypeVar("Read")


class Unreadable(Exception):
    """A blob's bytes are not what its media type says; ``str()`` says what is wrong with them."""


class Unreachable(SlipwayError):
    """A registry gives no answer: it is down, or out of reach from here."""


class Untrusted(Unreachable):
    """A registry is there, and speaks no HTTPS that this machine trusts; a Docker engine may be told to."""


@dataclass(frozen=True)
class Login:
    """A user name and a password or token for a registry's host, which nothing else is told."""

    host: str
    username: str
    password: str = field(repr=False)

    def serves(self, reference: str) -> bool:
        """Say whether it is for the registry that a reference names."""
        return covering([self.host], reference) is not None


@dataclass(frozen=True)
class Manifest:
    """What a registry holds under a name: its own digest, ``sha256:...``, what it says, and the bytes that say it."""

    digest: str
    media_type: str
    content: Mapping[str, Any]
    body: bytes = field(repr=False)


def digest(reference: str) -> str:
    """Return the digest, ``sha256:...``, of what a reference's tag stands for; for several platforms, their index's.

    Raises:
        SlipwayError: there is no such tag, or the registry cannot be asked.
    """
    return Repository(reference).digest()


def tag(reference: str, name: str, login: Login | None) -> None:
    """Give an image the tag ``name``; one that is there moves, if the registry lets it.

    Raises:
        SlipwayError: the image is not there, the login is refused, or the registry cannot be asked.
    """
    Repository(reference, login, reasons=_PUSHING).tag(name)


class Repository:
    """One repository of a registry, asked for what a reference names in it.

    A registry on this machine's loopback is asked in plain HTTP, as Docker does. Credentials are the ``login`` for this
    host, else for ghcr.io those of a GitHub job, else the machine's own Docker login, else none; where a registry
    asks for a token, it is fetched with them, or as anybody. ``reasons`` say what a refusal's status means.

    Raises:
        SlipwayError: the reference is none.
    """

    def __init__(self, reference: str, login: Login | None = None, reasons: Mapping[int, str] | None = None) -> None:
        self.reference = reference
        self._reasons = reasons or _PULLING
        try:
            check_reference(reference)
        except ValueError as error:
            raise SlipwayError(f"'{one_line(reference)}': {error}") from None
        name, self._version = split(qualified(reference))
        self.host, _, path = name.partition("/")
        scheme = "http" if re.fullmatch(r"(localhost|127(\.\d+){3})(:\d+)?", self.host) else "https"
        self._url = f"{scheme}://{_HOSTS.get(self.host, self.host)}/v2/{path}"
        self._scope = f"repository:{path}:pull"
        self._login = login if login and login.serves(reference) else None
        self._authorization = ""
        self._refused = False
        self._session = requests.Session()
        self._session.auth = self._authorized  # or a .netrc would be sent
        self._session.headers["User-Agent"] = "slipway"
        for address in ("http://", "https://"):
            self._session.mount(address, HTTPAdapter(max_retries=_RETRY))

    def digest(self) -> str:
        """Return the digest of what the reference stands for.

        Raises:
            SlipwayError: there is no such thing, or the registry cannot be asked.
        """
        with self._asked("HEAD", f"manifests/{self._version}", self._version) as answer:
            return self._said(answer)

    def found(self) -> str | None:
        """Return the digest of what the reference names; None where it names nothing, or nothing that we may see.

        Some registries refuse whoever asks for a repository that is not there yet.

        Raises:
            SlipwayError: the registry answers something else, cannot be asked, or does not know the login.
        """
        with self._request("HEAD", f"manifests/{self._version}") as answer:
            unknown = self._refused and answer.status_code == requests.codes.unauthorized
            if answer.status_code in _UNSEEN and not unknown:
                return None
            self._check(answer, self._version)
            return self._said(answer)

    def exists(self) -> bool:
        """Say whether the registry holds what the reference names.

        Raises:
            SlipwayError: the registry cannot be asked.
        """
        with self._request("HEAD", f"manifests/{self._version}") as answer:
            if answer.status_code == requests.codes.not_found:
                return False
            self._check(answer, self._version)
            return True

    def manifest(self) -> Manifest:
        """Return what the reference stands for.

        Raises:
            SlipwayError: there is no such thing, the registry cannot be asked, or it sends other bytes than the
                digest says.
        """
        found, media_type, body = self._manifest()
        content = self._parsed(body, "the manifest")
        return Manifest(found, content.get("mediaType") or media_type, content, body)

    def tag(self, name: str) -> None:
        """Give what the reference stands for another tag.

        Raises:
            SlipwayError: as :meth:`manifest` says, or the registry refuses it.
        """
        _, media_type, body = self._manifest()
        self._asked("PUT", f"manifests/{name}", name, body, media_type).close()

    def _said(self, answer: requests.Response) -> str:
        value = answer.headers.get("Docker-Content-Digest", "")
        if not _DIGEST.fullmatch(value):
            raise SlipwayError(f"{self.reference}: {self.host} does not say its digest, but '{one_line(value)}'")
        return value

    def _manifest(self) -> tuple[str, str, bytes]:
        """Return a manifest's digest, which is checked, its media type and its bytes."""
        with self._asked("GET", f"manifests/{self._version}", self._version) as answer:
            body = self._body(answer)
            found = f"sha256:{hashlib.sha256(body).hexdigest()}"
            said = answer.headers.get("Docker-Content-Digest", found)
            wanted = self._version if _DIGEST.fullmatch(self._version) else said
            if found != wanted:
                raise SlipwayError(f"{self.reference}: the manifest is corrupt: its digest is {found}, not {wanted}")
            return found, answer.headers.get("Content-Type", "").partition(";")[0].strip(), body

    def blob(self, digest: str, read: Callable[[IO[bytes]], Read]) -> Read:
        """Hand a blob's bytes to ``read`` as they come, and return what it makes of them once their digest is right.

        Where the connection breaks, ``read`` begins anew. It raises :class:`Unreadable` for bytes that make no sense.

        Raises:
            SlipwayError: there is no such blob, the registry cannot be asked, the bytes are not those of the digest,
                or ``read`` cannot make anything of them.
        """
        for wait in (*_WAITS, None):
            try:
                return self._blob(digest, read)
            except (HTTPError, requests.RequestException, OSError) as error:
                if wait is None:
                    reason = one_line(_reason(error))
                    raise SlipwayError(f"{self.reference}: {digest}: {self.host} broke off: {reason}") from None
                time.sleep(wait)
        raise AssertionError

    def json(self, digest: str) -> dict[str, Any]:
        """Return a small blob that is a JSON object, such as an image's configuration.

        Raises:
            SlipwayError: as :meth:`blob` says.
        """
        body = self.blob(digest, lambda stream: stream.read(_MOST))
        return self._parsed(body, digest)

    def _blob(self, digest: str, read: Callable[[IO[bytes]], Read]) -> Read:
        with self._asked("GET", f"blobs/{digest}", digest) as answer:
            source = _Source(answer.raw)
            result: Read | None = None
            broken: Unreadable | None = None
            try:
                result = read(cast("IO[bytes]", io.BufferedReader(source, _BUFFER)))
            except Unreadable as error:
                broken = error
            found = source.drained()
        if found != digest:
            raise SlipwayError(f"{self.reference}: a blob is corrupt: its digest is {found}, not {digest}")
        if broken is not None:
            raise SlipwayError(f"{self.reference}: {digest}: {broken}")
        return cast("Read", result)

    def _asked(
        self, method: str, what: str, version: str, body: bytes | None = None, media_type: str = ""
    ) -> requests.Response:
        answer = self._request(method, what, body, media_type)
        self._check(answer, version)
        return answer

    def _check(self, answer: requests.Response, version: str) -> None:
        if not answer.ok:
            answer.close()
            name = "" if version == self._version else f" {version}:"
            reason = self._reasons.get(answer.status_code, "the registry answers").format(host=self.host)
            raise SlipwayError(f"{self.reference}:{name} {reason} ({answer.status_code})")

    def _request(self, method: str, what: str, body: bytes | None = None, media_type: str = "") -> requests.Response:
        try:
            answer = self._send(method, what, body, media_type)
            if answer.status_code == requests.codes.unauthorized:
                challenge = answer.headers.get("WWW-Authenticate", "")
                answer.close()
                self._authorization = self._answer_to(challenge)
                answer = self._send(method, what, body, media_type)
        except (requests.RequestException, ValueError, KeyError) as error:
            kind = Untrusted if isinstance(error, requests.exceptions.SSLError) else Unreachable
            raise kind(f"{self.reference}: {self.host} cannot be asked: {one_line(_reason(error))}") from None
        return answer

    def _send(self, method: str, what: str, body: bytes | None, media_type: str) -> requests.Response:
        headers = {"Accept": ", ".join((*INDEXES, *IMAGES)), "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = media_type
        url = f"{self._url}/{what}"
        return self._session.request(
            method, url, data=body, headers=headers, stream=True, timeout=_SECONDS, allow_redirects=True
        )

    def _authorized(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._authorization:
            request.headers["Authorization"] = self._authorization
        return request

    def _answer_to(self, challenge: str) -> str:
        """Return the header that answers a registry's 401 (distribution specification, token authentication)."""
        login = self._credentials()
        basic = "" if login is None else _basic(login)
        kind, _, rest = challenge.partition(" ")
        if kind.lower() != "bearer":
            self._refused = bool(basic)  # where it is still refused with that
            return basic
        asked = dict(_CHALLENGE.findall(rest))
        realm = asked.pop("realm", "")
        if not realm.startswith(("http://", "https://")):
            raise ValueError(f"it sends us to '{realm}' for a token")
        query = {"service": asked.get("service", ""), "scope": asked.get("scope") or self._scope}
        self._authorization = basic
        with self._session.get(realm, params=query, stream=True, timeout=_SECONDS) as answer:
            if not answer.ok:
                # One that is known, but may not do what is asked, gets a token that lets it do less (the same source).
                self._refused = bool(basic) and answer.status_code == requests.codes.unauthorized
                return ""
            body = json.loads(self._body(answer))
        return f"Bearer {body.get('token') or body['access_token']}"

    def _credentials(self) -> Login | None:
        if self._login:
            return self._login
        if self.host == "ghcr.io":
            found = {key: os.environ.get(variable, "") for key, variable in GhcrRegistry.VARIABLES.items()}
            if all(found.values()):
                return Login(self.host, **found)
        return _docker_login(self.host)

    def _parsed(self, body: bytes, what: str) -> dict[str, Any]:
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise SlipwayError(f"{self.reference}: {what} is no JSON object")
        return content

    def _body(self, answer: requests.Response) -> bytes:
        try:
            body = answer.raw.read(_MOST + 1, decode_content=True)
        except HTTPError as error:
            raise SlipwayError(f"{self.reference}: {self.host} broke off: {one_line(_reason(error))}") from None
        if len(body) > _MOST:
            raise SlipwayError(f"{self.reference}: {self.host} answers with more than {_MOST >> 20} MiB")
        return cast("bytes", body)


_WANTS_LOGIN: Final = "the registry wants a login that may pull this; `docker login {host}`"
_REFUSES: Final = "the registry refuses the login, or it may not push there; check slipway:registry's credentials"
_REASONS: Final = {
    404: "there is no such image, tag or digest in the registry; it may have been deleted",
    429: "the registry allows no more requests for now; try again later",
}
_PULLING: Final = _REASONS | dict.fromkeys((401, 403), _WANTS_LOGIN)
_PUSHING: Final = _REASONS | dict.fromkeys((401, 403), _REFUSES)


class _Source(io.RawIOBase):
    """A blob's bytes, with the SHA-256 of all that has passed."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._sum = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._raw.read(len(buffer), decode_content=False)
        self._sum.update(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def drained(self) -> str:
        """Read what is left, and return the digest of all."""
        buffer = bytearray(_BUFFER)
        while self.readinto(buffer):
            pass
        return f"sha256:{self._sum.hexdigest()}"


def _docker_login(host: str) -> Login | None:
    """Return what ``docker login`` has stored for a registry, or a credential helper of Docker's gives for it."""
    lowered = {key.lower(): value for key, value in docker_login.stored(host).items()}
    username, password = lowered.get("username"), lowered.get("password")
    return Login(host, username, password) if username and password else None


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode("ascii")


def _reason(error: Exception) -> str:
    """Return the innermost reason of a failed request: urllib3 wraps it in what it tried."""
    inner: Any = error
    while True:
        deeper = getattr(inner, "reason", None)
        if not isinstance(deeper, Exception):
            deeper = next((arg for arg in getattr(inner, "args", ()) if isinstance(arg, Exception)), None)
        if deeper is None:
            break
        inner = deeper
    text = str(getattr(inner, "strerror", None) or inner)
    return re.sub(r"^<.*?>: |^\w+\(.*?\): ", "", text)
