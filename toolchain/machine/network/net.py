"""Downloads that fail fast and are verified, and the memory of unreachable hosts."""

import errno
import hashlib
import http.client
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from toolchain.machine.network import proxy
from toolchain.machine.toolchain_error import without_credentials

CONNECT_SECONDS: Final = 4.0
"""How long a host may take to answer at all, name look-up included, before it counts as unreachable."""
STALL_SECONDS: Final = 20.0
"""How long a download may stall."""

_answers: dict[str, str] = {}
"""What is known of a host in this run: empty if it answered, else why it did not."""


class UnavailableError(Exception):
    """A download failed. Its text is the reason, in a few words and without credentials."""

    def __init__(self, why: str) -> None:
        super().__init__(without_credentials(why))


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return "no answer" if isinstance(cause, TimeoutError) else str(cause) or type(cause).__name__


def netloc(url: str) -> str:
    """Return the host and the port of an address, without its login."""
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


def _probe(url: str) -> None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=CONNECT_SECONDS):  # noqa: S310
            reason = ""
    except urllib.error.HTTPError:
        reason = ""  # any answer is an answer
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = _reason(error)
    _answers[netloc(url)] = reason


def unreachable(urls: Iterable[str]) -> dict[str, str]:
    """Ask the hosts of some URLs, all at once, for a sign of life; proxies set in the environment are used.

    Returns why, by host, for those that gave none. A host is probed once in a run, and all of them together take no
    longer than CONNECT_SECONDS: a name look-up cannot be interrupted, so it is left behind.
    """
    hosts = {netloc(url): url for url in urls}
    threads = [
        threading.Thread(target=_probe, args=(url,), daemon=True) for host, url in hosts.items() if host not in _answers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CONNECT_SECONDS + 0.5)
    return {host: why for host in hosts if (why := _answers.setdefault(host, "no answer"))}


def check_scheme(url: str) -> None:
    """Refuse a URL with a password, or that is neither https nor on this machine (downloads are run).

    Raises UnavailableError.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, user, _ = parts.scheme, parts.hostname, parts.username, parts.port
    except ValueError:  # brackets or a port that are none
        scheme, host, user = "", None, None
    if not (host and (scheme == "https" or (scheme == "http" and host in proxy.LOOPBACK))):
        raise UnavailableError(f"{url} is not an https:// address")
    if user is not None:
        raise UnavailableError(f"{url}: an address with user:password@ is not taken")


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Follows a redirection that leads nowhere else than `check_scheme` allows, and never from https to http."""

    def redirect_request(self, req: urllib.request.Request, *response: Any) -> urllib.request.Request | None:
        """Return the request to make instead. Raises UnavailableError for one that is refused."""
        there: str = response[-1]
        check_scheme(there)
        if req.full_url.startswith("https:") and not there.startswith("https:"):
            raise UnavailableError(f"{req.full_url} redirects to {there}, which is not encrypted")
        return super().redirect_request(req, *response)


def fetch(url: str, target: Path) -> str:
    """Download a URL into a file and return its SHA-256 as hex digits.

    Raises UnavailableError where the download fails, or ends early; `target` may then hold a part.
    """
    check_scheme(url)
    if why := unreachable([url]):
        raise UnavailableError("; ".join(f"{host}: {reason}" for host, reason in why.items()))
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            urllib.request.build_opener(_Encrypted).open(url, timeout=STALL_SECONDS) as response,
            target.open("wb") as file,
        ):
            while block := response.read(1 << 20):
                file.write(block)
                digest.update(block)
            size, expected = file.tell(), response.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"{url}: HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
            raise  # this machine's disk, not the download
        raise UnavailableError(f"{url}: {_reason(error)}") from None
    if expected is not None and size != int(expected):
        raise UnavailableError(f"{url}: cut off after {size} of {expected} bytes")
    return digest.hexdigest()
