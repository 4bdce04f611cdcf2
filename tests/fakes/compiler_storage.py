"""ccache's remote storage over HTTP, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.fakes.loopback import serving


@contextmanager
def storage(entries: dict[str, bytes]) -> Iterator[str]:
    """Serve a storage of some entries until the block ends; yield its address, as ``CCACHE_REMOTE`` takes it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # ccache keeps its connection

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer(200 if self.path in entries else 404, entries.get(self.path, b""))

        do_HEAD = do_GET  # noqa: N815

        def do_PUT(self) -> None:
            entries[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(201)

        def do_DELETE(self) -> None:
            entries.pop(self.path, None)
            self._answer(204)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as address:
        yield f"http://{address}"
