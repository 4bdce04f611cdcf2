"""Serves a folder, a Python index and git repositories over HTTP, at an address that builds on the engine reach."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

GIT_BACKEND = Path(
    subprocess.run(["git", "--exec-path"], check=True, capture_output=True, text=True).stdout.strip(),
    "git-http-backend",
)


class Handler(SimpleHTTPRequestHandler):
    """Files as they are; below /git/ the smart protocol; a 302 in a file named as the path with `.location` behind."""

    def _git(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(Path(self.directory)),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": unquote(url.path),
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": self.client_address[0],
        }
        done = subprocess.run(
            [GIT_BACKEND], input=self.rfile.read(length), env=environment, capture_output=True, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if "/info/refs" in self.path:
            self._git()
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self._git()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Threads(ThreadingHTTPServer):
    request_queue_size = 128  # every stage of a build asks at once; the default of 5 lets some time out


class Server:
    """A server of ``folder`` on ``address``, until it is closed; over TLS with a ``certificate``, key and all."""

    def __init__(
        self,
        folder: Path,
        address: str,
        port: int,
        certificate: Path | None = None,
        kind: type[Handler] = Handler,
    ) -> None:
        def handler(*args: object) -> Handler:
            return kind(*args, directory=str(folder))  # type: ignore[arg-type]

        try:
            self._server = _Threads((address, port), handler)
        except OSError:  # another run has it: builds are not cached from one port to another, that is all
            self._server = _Threads((address, 0), handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://{address}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
