"""A host that asks for a login: a Debian archive, a Python index and git repositories over https, as a company has them."""

from __future__ import annotations

import base64
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from tests.fakes.upstreams.server import Handler, Server


def certificate(folder: Path, address: str) -> tuple[Path, str]:
    """Make a certificate for an address; return the file that a server needs, and the root as PEM."""
    key, root, both = folder / "key.pem", folder / "root.pem", folder / "both.pem"
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:{address}"
    subprocess.run([*request.split(), "-keyout", key, "-out", root], check=True, capture_output=True)
    both.write_text(key.read_text() + root.read_text())
    return both, root.read_text()


class ClosedHost:
    """The host: it serves `folder`, and forwards below `archives` to the addresses that they stand for.

    What is below a part of `closed`, such as ``git``, is only for `username` and `password`. `refused` and `admitted`
    have the paths that were asked for without them and with them.
    """

    def __init__(self, folder: Path, address: str, archives: Mapping[str, str], password: str) -> None:
        self.password = password
        self.closed = {"debian", "debian-security", "simple", "files", "git"}
        self.refused: list[str] = []
        self.admitted: list[str] = []
        expected = f"Basic {base64.b64encode(f'ci:{password}'.encode()).decode()}"
        host = self

        class Closed(Handler):
            def _admits(self) -> bool:
                first = self.path.strip("/").partition("/")[0]
                if self.headers.get("Authorization") == expected:
                    host.admitted.append(self.path)
                    return True
                if first not in host.closed:
                    return True
                host.refused.append(self.path)
                self.send_response(HTTPStatus.UNAUTHORIZED)
                self.send_header("WWW-Authenticate", 'Basic realm="closed"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return False

            def do_GET(self) -> None:  # noqa: N802 - the server names it
                if not self._admits():
                    return
                first, _, rest = self.path.strip("/").partition("/")
                if first in archives:
                    self._forward(f"{archives[first]}/{rest}")
                else:
                    super().do_GET()

            def do_POST(self) -> None:  # noqa: N802 - likewise
                if self._admits():
                    super().do_POST()

            def _forward(self, url: str) -> None:
                try:
                    with urllib.request.urlopen(url) as response:
                        self.send_response(HTTPStatus.OK)
                        self.send_header("Content-Length", response.headers["Content-Length"])
                        self.end_headers()
                        shutil.copyfileobj(response, self.wfile)
                except urllib.error.HTTPError as error:
                    self.send_error(error.code)

        file, self.root = certificate(folder, address)
        (folder / "files").mkdir()
        self.server = Server(folder / "files", address, 0, file, Closed)
        self.url = self.server.url
