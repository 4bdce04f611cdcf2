"""A package index on this machine with tiny stand-ins of torch's wheels: the same names and shapes, a few bytes each."""

from __future__ import annotations

import io
import ssl
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType


def wheel(
    folder: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    code: str = "",
    large: Mapping[str, int] = MappingProxyType({}),
) -> Path:
    """Write a wheel of `name` with one module, which says its version and then runs `code`.

    ``large`` has further files of so many MiB, programs that print their path and version.
    """
    module, stem = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    files = {
        f"{module}.py": f"__version__ = {version!r}\n{code}",
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{path},,\n" for path in [*files, *large, f"{stem}.dist-info/RECORD"])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(zipfile.ZipInfo(file), content)
        for file, size in large.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16
            archive.writestr(
                entry,
                f"#!/bin/sh\necho {file} {version}\nexit\n".encode().ljust(size << 20, b"\n"),
                zipfile.ZIP_DEFLATED,
            )
    return path


def sdist(folder: Path, name: str, version: str, backend: str, code: str = "") -> Path:
    """Write a source distribution of `name`, which `backend` builds, with one module of `code`."""
    stem = f"{name}-{version}"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": f'[build-system]\nrequires = ["{backend}"]\nbuild-backend = "{backend}"\n',
        f"{name}.py": code,
    }
    path = folder / f"{stem}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, content in files.items():
            member = tarfile.TarInfo(f"{stem}/{file}")
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return path


class Index:
    """A package index over http, or over https with a certificate of its own, that also forwards to Debian's archive.

    Its `url` is another one each time: to the engine's build cache, one address always has the same packages.
    `archives` maps the first part of a path to the address it stands for, e.g. ``debian`` to a mirror's ``.../debian``.
    """

    def __init__(self, folder: Path, archives: dict[str, str] | None = None, certificate: Path | None = None) -> None:
        self.folder, self.requests = folder, list[str]()
        index = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                index.requests.append(self.path)
                status, body = index.answer(self.path, archives or {})
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

            do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.address}/{uuid.uuid4().hex}/simple/"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def answer(self, path: str, archives: dict[str, str]) -> tuple[int, bytes]:
        """Return the status and body for `path`: a project's page, a wheel, or a file of a Debian archive."""
        first, _, rest = urllib.parse.unquote(path).strip("/").partition("/")
        if first in archives:
            try:
                with urllib.request.urlopen(f"{archives[first]}/{rest}") as response:
                    return response.status, response.read()
            except urllib.error.HTTPError as error:
                return error.code, b""
        if first == "files" and (self.folder / rest).is_file():
            return 200, (self.folder / rest).read_bytes()
        project = rest.rpartition("simple/")[2].replace("-", "_")
        wheels = sorted(self.folder.glob(f"{project}-*.whl"))
        page = "".join(f'<a href="/files/{one.name}">{one.name}</a>\n' for one in wheels)
        return (200 if wheels else 404), f"<!doctype html><title>{project}</title>\n{page}".encode()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


PINNED = ("nvidia-cublas==13.1", "nvidia-cufft==12.0", "nvidia-cudnn-cu13==9.24", "nvidia-nccl-cu13==2.30")
"""What the stand-in of torch pins, as the real one does."""


def standins(folder: Path) -> None:
    """Write the wheels of one stack and of its next patch release, 2.1.1: torch is new, and nothing that it pins."""
    for version in ("2.1.0", "2.1.1"):
        wheel(folder, "torch", version, [*PINNED, "triton~=3.8", "sympy"])
    wheel(folder, "torchvision", "0.16.0", ["torch", "pillow>=13"])
    for version in ("2.1.0", "2.1.1"):
        wheel(folder, "torchaudio", version)
    wheel(folder, "triton", "3.8.0")
    wheel(folder, "sympy", "1.14", ["mpmath"])
    wheel(folder, "nvidia-cufft", "12.0", ["nvidia-nvjitlink"])
    for name, version in (
        *(tuple(pin.split("==")) for pin in PINNED if "cufft" not in pin),
        ("nvidia-nvjitlink", "13.5"),
        ("mpmath", "1.3"),
        ("pillow", "13.0"),
        ("setuptools", "81.0"),
        ("setuptools", "84.0"),
    ):
        wheel(folder, name, version)


VERSIONS = {"TORCH_VERSION": "2.1.0", "TORCHVISION_VERSION": "0.16.0", "TORCHAUDIO_VERSION": "2.1.0"}
"""Build arguments for the stand-ins."""
