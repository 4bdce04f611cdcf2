"""A session of requests with one server, and with where it leads."""

from __future__ import annotations

from typing import Any

import requests

from containers.registry.guarded_adapter import GuardedAdapter


class GuardedSession(requests.Session):
    """Sends requests to the server at ``address``, a URL, and to where it leads, by :class:`GuardedAdapter`.

    The session sends no login but that of a request's own ``auth``, to its server alone: none of a ``.netrc`` and none
    of a URL.
    Without ``verify`` it takes any certificate.
    """

    def __init__(self, address: str, *, verify: bool = True, **options: Any) -> None:
        super().__init__()
        self.verify = verify
        self.auth = lambda request: request  # or requests would send the credentials of a .netrc
        self.headers["User-Agent"] = "slipway"
        adapter = GuardedAdapter(address, verify=verify, **options)
        for prefix in ("http://", "https://"):
            self.mount(prefix, adapter)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Return the settings of a request. Requests would take a variable's certificates where none are verified."""
        return super().merge_environment_settings(url, proxies, stream, self.verify and verify, cert)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Send a login no further than to its server: after a redirect, requests would look into a .netrc again."""
        if self.should_strip_auth(response.request.url, prepared_request.url):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)
