"""The one rule for sending a request to a registry again: the causes, the number of attempts, the waits.

Each request is sent again, but for the body of an upload: the registry may have forgotten that upload, so a new one
begins. A second start of an upload leaves the first one unused. A second manifest is the same manifest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Final

import requests
from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

BUSY: Final = frozenset((408, 429, 500, 502, 503, 504))
"""Statuses after which a request is sent again."""
_WAITS: Final = (0.5, 1.0, 2.0)
"""Seconds before each further attempt, or more if the registry asks for more."""
_LIMITED: Final = 5.0
"""Seconds that a registry asks for whose request limit is reached, and that names no time."""
_LONGEST: Final = 60
"""Seconds that a registry may ask for; one that asks for more is not asked again."""
_TOLD: Final = 5.0
"""Seconds from which on a wait is also a warning, which Python prints to standard error."""
_PAUSE: Final = 0.5
"""Seconds between two lines about a wait."""
_RETRY_AFTER: Final = Retry(retry_after_max=1 << 30)


class Attempts:
    """The attempts of one request to ``host``. ``progress`` takes a line twice a second of a wait, and may raise."""

    def __init__(self, host: str, progress: Callable[[str], None]) -> None:
        self._host, self._progress = host, progress
        self.count = 1
        self._waited, self._asked, self._reasons = 0.0, 0.0, dict[str, None]()

    def again(self, response: requests.Response | None, statuses: Collection[int] = BUSY) -> bool:
        """Wait, and return whether to send the request again; at once where it is not.

        ``response`` is the answer, which is closed then; None if the connection broke.
        """
        if response is not None and response.status_code not in statuses:
            return False
        self._asked = _asked(response)
        if self.count > len(_WAITS) or self._asked > _LONGEST:
            return False
        why = "a broken connection" if response is None else _named(response.status_code)
        if response is not None:
            response.close()
        self._reasons[why] = None
        self._wait(max(self._asked, _WAITS[self.count - 1]), why)
        self.count += 1
        return True

    @property
    def said(self) -> str:
        """What was waited for, how often and how long; empty if nothing was."""
        waits = f"sent {self.count} times in {self._waited:.3g} s" if self.count > 1 else ""
        asked = f"the registry asks for a wait of {self._asked:.0f} s" if self._asked > _LONGEST else ""
        return ", ".join(filter(None, (waits, asked)))

    @property
    def summary(self) -> str:
        """The line about a request that was sent again and then got its answer; empty for any other."""
        return f"{self._host}: {self.said}, after {', '.join(self._reasons)}" if self.count > 1 else ""

    def _wait(self, seconds: float, why: str) -> None:
        if seconds >= _TOLD:
            logging.getLogger(__name__).warning("%s answers with %s: waiting %.0f s", self._host, why, seconds)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._progress(f"{self._host} answers with {why}: waiting {left:.0f} s")
            time.sleep(min(left, _PAUSE))
        self._waited += seconds


def _asked(response: requests.Response | None) -> float:
    """Return the seconds that a response asks to wait, by a number or a date (RFC 9110, 10.2.3); 0 if it does not."""
    if response is None:
        return 0.0
    try:
        return _RETRY_AFTER.parse_retry_after(response.headers.get("Retry-After", ""))
    except (InvalidHeader, ValueError, OverflowError, TypeError):
        return _LIMITED if response.status_code == HTTPStatus.TOO_MANY_REQUESTS else 0.0


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
