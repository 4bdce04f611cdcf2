"""A stand-in, on this machine's loopback, of the place that publishes Pulumi's releases."""

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from toolchain.machine import apt

PROGRAMS = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-pulumi-python")


def archive(folder: str, files: dict[str, str]) -> bytes:
    """Return a gzipped tar with shell scripts in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, script in files.items():
            content = f"#!/bin/sh\n{script}\n".encode()
            info = tarfile.TarInfo(f"{folder}{name}")
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def pin(root: Path, name: str, version: str, content: bytes = b"") -> None:
    """Pin a file's content in a checkout, for this machine; any other content is refused."""
    table = root / "toolchain/releases.toml"
    table.parent.mkdir(exist_ok=True)
    with table.open("a") as file:
        file.write(f'[{name}."{version}"]\n{apt.machine()} = "{hashlib.sha256(content).hexdigest()}"\n')


class Release:
    """Serves files; `truncated` cuts them short, `silent` takes requests and never answers.

    `requests` counts the requests for each path.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self.name = f"pulumi-v{version}-linux-{apt.machine().replace('amd64', 'x64')}.tar.gz"
        content = archive("pulumi/", dict.fromkeys(PROGRAMS, f"echo v{version}"))
        self.files = {self.name: content}
        self.truncated: set[str] = set()
        self.silent = threading.Event()
        self.released = threading.Event()
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def pin(self, root: Path) -> None:
        """Pin the release in a checkout."""
        pin(root, "pulumi", self.version, self.files[self.name])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        release = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.strip("/")
                release.requests.append(name)
                if release.silent.is_set():
                    release.released.wait()
                    return
                content = release.files.get(name)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content[: len(content) // 2] if name in release.truncated else content)

            do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

            def log_message(self, *_words: object) -> None:
                return

        return Handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
