"""HTTP requests to one registry: retries, time limits and token authentication (OCI distribution specification)."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from functools import partial
from typing import IO, Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError, ProtocolError

from containers.addresses.guarded_session import GuardedSession
from containers.blob import LIMIT
from containers.errors import SlipwayError, one_line
from containers.registry import credentials
from containers.registry.attempts import BUSY, Attempts
from containers.registry.credentials import Login
from containers.registry.logins import token_request
from containers.registry.reference import on_loopback

_CHUNK: Final = 1 << 16
"""Bytes that are read at once."""
_API_HOSTS: Final = {"docker.io": "registry-1.docker.io"}
"""Registries whose API has another host than their image names."""
_LONGEST: Final = 120
"""Seconds for the whole of a manifest or JSON response, which may come byte by byte."""
_TIMEOUTS: Final = (10, 30)
"""Seconds to connect, and between two bytes of a response."""
_UPLOAD_TIMEOUTS: Final = (60, 900)
"""The same of an upload: a registry that keeps blobs elsewhere answers after it has copied the whole of one."""
_BROKEN: Final = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
_CHALLENGE: Final = re.compile(r'\b(\w+)="([^"]*)"')


class RegistryUnreachable(SlipwayError):
    """A registry does not respond: it is down, or this machine has no route to it."""


class Untrusted(RegistryUnreachable):
    """A registry responds without HTTPS that this machine trusts; a Docker engine may be configured to trust it."""


class Transport:
    """The connection to the registry of one repository.

    A registry on the loopback interface is reached over plain HTTP, as Docker does, and others over HTTPS, unless
    ``scheme`` is given. ``login`` is sent to this registry only, and one without a user name is anonymous; without one,
    :func:`containers.registry.credentials.of_machine` decides. ``reference`` begins each error. ``verify`` is whether
    the registry's certificate is verified. ``progress`` is that of :class:`~containers.registry.attempts.Attempts`.
    """

    def __init__(
        self,
        reference: str,
        host: str,
        path: str,
        login: Login | None,
        *,
        scheme: str = "",
        verify: bool = True,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.host = host
        self.refused = False
        """Whether the registry rejected a login as unknown."""
        self._reference = reference
        scheme = scheme or ("http" if on_loopback(host) else "https")
        self._url = f"{scheme}://{_API_HOSTS.get(host, host)}/v2/{path}"
        self._scope = f"repository:{path}:pull"
        self._login = login
        self._authorization = ""
        self._session = GuardedSession(self._url, verify=verify)
        self._progress, self._ended = progress, False
        self.waits: list[str] = []
        """A line about each request that was sent again, and then got its answer."""

    def attempts(self) -> Attempts:
        """Return the attempts of one request. Raises SlipwayError: :meth:`end` was called."""
        self._check_end()
        return Attempts(self.host, self._going)

    def end(self) -> None:
        """End the waits of other threads for a busy registry, and let none of them send another request."""
        self._ended = True

    def _check_end(self) -> None:
        if self._ended:
            raise SlipwayError(f"{self._reference}: nothing more is asked of {self.host}")

    def _going(self, line: str) -> None:
        self._check_end()
        self._progress(line)

    def request(
        self,
        method: str,
        path: str,
        accept: str,
        body: bytes | IO[bytes] | None = None,
        media_type: str = "",
        attempts: Attempts | None = None,
    ) -> requests.Response:
        """Send a request, again with a token if the registry requires one; return the response, whatever its status.

        ``path`` is below the repository, or a whole address that the registry named. A login is sent to the registry's
        own host alone. A file is sent from its beginning. Without ``attempts`` the request is sent once.

        Raises RegistryUnreachable: there is no response.
        """
        try:
            return self._repeated(lambda: self._authenticated(method, path, accept, body, media_type), attempts)
        except (requests.RequestException, ValueError, KeyError) as error:
            kind = Untrusted if isinstance(error, requests.exceptions.SSLError) else RegistryUnreachable
            said = f" ({attempts.said})" if attempts and attempts.said else ""
            raise kind(f"{self._reference}: request to {self.host} failed: {reason(error)}{said}") from None

    def _repeated(self, send: Callable[[], requests.Response], attempts: Attempts | None) -> requests.Response:
        """Send a request as often as its attempts allow; return the last response."""
        while True:
            try:
                response = send()
            except _BROKEN as error:
                if isinstance(error, requests.exceptions.SSLError) or not (attempts and attempts.again(None)):
                    raise
                continue
            if not (attempts and attempts.again(response)):
                if attempts and response.status_code not in BUSY:
                    self.waits.extend(filter(None, [attempts.summary]))
                return response

    def _authenticated(
        self, method: str, path: str, accept: str, body: bytes | IO[bytes] | None, media_type: str
    ) -> requests.Response:
        response = self._send(method, path, accept, body, media_type, self._authorization)
        # A storage to which the registry leads may be another's: its token server gets no login.
        if response.status_code == requests.codes.unauthorized and self._is_home(response.url):
            challenge = response.headers.get("WWW-Authenticate", "")
            response.close()
            # Of its own: a request in another thread may have another one, for less, by the time this one is sent.
            authorization = self._authorization = self._authenticate(challenge)
            response = self._send(method, path, accept, body, media_type, authorization)
        return response

    def body(self, response: requests.Response) -> bytes:
        """Return the body of a response.

        Raises SlipwayError: the connection breaks, or the body is larger than :data:`LIMIT` or takes too long.
        """
        body, end = bytearray(), time.monotonic() + _LONGEST
        try:
            while part := chunk(response.raw.read1, _CHUNK, decode_content=True):
                body += part
                if len(body) > LIMIT:
                    raise SlipwayError(f"{self._reference}: {self.host} sent more than {LIMIT >> 20} MiB")
                if time.monotonic() > end:
                    raise SlipwayError(f"{self._reference}: {self.host} sent no whole response in {_LONGEST} s")
        except HTTPError as error:
            raise SlipwayError(f"{self._reference}: connection to {self.host} broke: {reason(error)}") from None
        finally:
            response.close()
        return bytes(body)

    def _send(
        self, method: str, path: str, accept: str, body: bytes | IO[bytes] | None, media_type: str, authorization: str
    ) -> requests.Response:
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = media_type
        is_file = not isinstance(body, bytes | None)
        if not isinstance(body, bytes | None):
            body.seek(0)
        url = urljoin(f"{self._url}/", path)
        response = self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            auth=_authorized(authorization if self._is_home(url) else ""),
            stream=True,
            timeout=_UPLOAD_TIMEOUTS if is_file else _TIMEOUTS,
            allow_redirects=True,
        )
        if response.request.method != method:  # GET, after 301, 302 or 303
            response.close()
            raise ValueError(f"it leads from {method} to a page, {one_line(response.url)}")
        return response

    def _is_home(self, url: str) -> bool:
        return urlsplit(url.lower())[:2] == urlsplit(self._url.lower())[:2]

    def _authenticate(self, challenge: str) -> str:
        """Return the ``Authorization`` header that answers a 401 (distribution specification, token authentication)."""
        login = self._login or credentials.of_machine(self.host)
        identity = login.identity_token if login else ""
        basic = ""
        if login and login.username and not identity:
            basic = "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode("ascii")
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() != "bearer":
            self.refused = bool(basic)  # if the registry answers 401 to it
            return basic
        parameters = dict(_CHALLENGE.findall(rest))
        realm = parameters.get("realm", "")
        if not realm.startswith(("http://", "https://")):
            raise ValueError(f"its token server is '{one_line(realm)}', expected a URL")
        if realm.startswith("http://") and (basic or identity) and not on_loopback(urlsplit(realm).netloc):
            raise ValueError(f"its token server, {one_line(realm)}, would get the login without encryption")
        query = {"service": parameters.get("service", ""), "scope": parameters.get("scope") or self._scope}
        exchange: dict[str, Any] = {"params": query}
        if identity:  # distribution specification, OAuth2 token authentication
            form = {"grant_type": "refresh_token", "refresh_token": identity, "client_id": "slipway"}
            exchange = {"data": {**query, **form}, "allow_redirects": False}
        method = "POST" if identity else "GET"
        ask = partial(self._session.request, method, realm, **exchange, auth=_authorized(basic), stream=True)
        with self._answer_of(lambda: ask(timeout=_TIMEOUTS)) as response:
            if not response.ok:
                # A known login without the right gets a token for fewer rights, not a 401 (same source).
                self.refused = bool(basic or identity) and response.status_code == requests.codes.unauthorized
                return ""
            token = _token(self.body(response))
        return f"Bearer {token}"

    def _answer_of(self, ask: Callable[[], requests.Response]) -> requests.Response:
        """Return the answer of the token server. Its failure is a ValueError, so that no request asks it anew."""
        attempts = self.attempts()
        try:
            response = self._repeated(ask, attempts)
        except requests.exceptions.SSLError:
            raise
        except _BROKEN as error:
            raise ValueError(f"its token server does not answer: {reason(error)} ({attempts.said})") from None
        if response.status_code in BUSY:
            response.close()
            raise ValueError(f"its token server answers {response.status_code} ({attempts.said})")
        return response


def _authorized(value: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Return what gives a request its ``Authorization``; an empty one is none, and none of a ``.netrc``."""

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if value:
            request.headers["Authorization"] = value
        return request

    return authorize


def chunk(read: Callable[..., bytes], size: int, *, decode_content: bool) -> bytes:
    """Return the next bytes of a response, at most ``size``.

    Raises HTTPError: the connection breaks, or what comes is malformed: of a chunk of -1 bytes, urllib3 knows nothing.
    """
    try:
        return read(size, decode_content=decode_content)
    except (OverflowError, ValueError) as error:
        raise ProtocolError(str(error)) from None


def _token(body: bytes) -> str:
    try:
        content = json.loads(body)
        return token_request.token(content.get("token") or content["access_token"])
    except (ValueError, KeyError, AttributeError, RecursionError):
        raise ValueError("its token server sent no token") from None


def reason(error: Exception) -> str:
    """Return the innermost cause of a failed request, on one line: urllib3 wraps it in its attempts."""
    inner: Any = error
    while True:
        deeper = getattr(inner, "reason", None)
        if not isinstance(deeper, Exception):
            deeper = next((arg for arg in getattr(inner, "args", ()) if isinstance(arg, Exception)), None)
        if deeper is None:
            break
        inner = deeper
    text = str(getattr(inner, "strerror", None) or inner)
    return one_line(re.sub(r"^<.*?>: |^\w+\(.*?\): ", "", text))
