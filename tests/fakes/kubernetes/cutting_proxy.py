"""A proxy before an API server, at which a provider can be killed when the server has taken a request."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests

from tests.cluster.control_plane import TOKEN, Cluster

_HOPS = {"transfer-encoding", "connection", "content-length", "host", "accept-encoding", "content-encoding"}
"""Headers that are of one connection."""


class Cut:
    """What ends a request without an answer: its method and path, once, and what is called then."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        self._lock = threading.Lock()
        self._request = ""
        self._action: Callable[[], None] | None = None

    def at(self, request: str, action: Callable[[], None]) -> None:
        """Call ``action`` when the server has taken the next request that matches, such as ``POST .*/secrets``."""
        self._request, self._action = request, action

    def answered(self, method: str, path: str) -> bool:
        """Tell whether a request that the server has taken gets no answer."""
        place, _, query = path.partition("?")
        with self._lock:
            if self._action is None or "dryRun" in query or not re.fullmatch(self._request, f"{method} {place}"):
                return False
            action, self._action = self._action, None
        self.hits.append(place)
        action()
        return True


@contextmanager
def cutting_proxy(cluster: Cluster, kubeconfig: Path) -> Iterator[Cut]:
    """Forward to a cluster until the block ends; ``kubeconfig`` is written, and leads through here."""
    cut = Cut()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept = {key: value for key, value in self.headers.items() if key.lower() not in _HOPS}
            kept |= {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "identity"}
            with requests.Session() as session:
                session.trust_env, session.verify = False, cluster.session.verify
                response = session.request(
                    self.command, cluster.server + self.path, data=body, headers=kept, stream=True, timeout=(10, None)
                )
                if cut.answered(self.command, self.path):
                    self.close_connection = True
                    return
                self.send_response(response.status_code)
                for key, value in response.headers.items():
                    if key.lower() not in _HOPS:
                        self.send_header(key, value)
                if response.status_code in {204, 304}:  # as a client that keeps a cache is told; neither has a body
                    self.end_headers()
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for part in response.iter_content(None):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

        def handle(self) -> None:
            with suppress(OSError, requests.RequestException):  # the client is killed, or the cluster ends
                super().handle()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815 - the server's names

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{server.server_address[1]}"
        kubeconfig.write_text(json.dumps(config))
        yield cut
        server.shutdown()
