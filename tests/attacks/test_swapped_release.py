"""A server of released programs, or who stands before it, serves other programs with checksums that fit them."""

from __future__ import annotations

import hashlib
import http.server
import re
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers import user_cache
from tests.fakes.closed_host import certificate
from tests.fakes.pulumi_release import Release, archive, pin
from toolchain.checkout import Checkout
from toolchain.machine import apt, golang
from toolchain.machine.network import net
from toolchain.parts import pulumi_cli, releases, supply_chain_programs
from toolchain.parts.plugins import plugin


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """A server that the attacker controls, whose checksums fit what it serves."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Release("3.259.0") as served:
        content = archive("pulumi/", {"pulumi": "touch /tmp/pwned"})
        listed = f"{hashlib.sha256(content).hexdigest()}  {served.name}\n".encode()
        served.files |= {served.name: content, "pulumi-3.259.0-checksums.txt": listed}
        monkeypatch.setenv("SLIPWAY_PULUMI_BASE_URL", served.url)
        monkeypatch.setenv("SLIPWAY_PULUMI_PLUGIN_URL", served.url)
        yield served


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    root.mkdir()
    lines = ("pulumi==3.259.0", "pulumi-aws==7.1.0", "pulumi-docker==5.2.0", "pulumi-kubernetes==4.1.0")
    (root / "requirements.lock").write_text("".join(f"{line}\n" for line in lines))
    return Checkout(root)


def test_cli_with_fitting_checksums_is_not_unpacked(checkout: Checkout, release: Release) -> None:
    with pytest.raises(net.UnavailableError, match="has no hash in toolchain/releases.toml"):
        pulumi_cli.download(checkout)
    assert release.requests == []
    pin(checkout.root, "pulumi", "3.259.0", b"what was released")
    with pytest.raises(net.UnavailableError, match="SHA-256 is .*, pinned is "):
        pulumi_cli.download(checkout)
    assert not checkout.bin.exists() or not [*checkout.bin.iterdir()]


@pytest.mark.parametrize("name", ["aws", "docker", "kubernetes"])
def test_plugin_without_its_hash_is_not_installed(checkout: Checkout, release: Release, name: str) -> None:
    assert "has no hash in toolchain/releases.toml" in plugin.install(checkout, name)
    assert release.requests == []


@pytest.mark.parametrize("tool", supply_chain_programs.TOOLS, ids=lambda tool: tool.name)
def test_committed_table_pins_signing_programs(tool: supply_chain_programs.Tool) -> None:
    pinned = releases._pins(Checkout.here())[tool.name]
    assert list(pinned) == [golang.required(tool.name, tool.module)]
    assert {len(digest) for digest in pinned.popitem()[1].values()} == {64}


def test_file_that_another_user_left_in_the_cache_is_not_used(
    checkout: Checkout, release: Release, tmp_path: Path
) -> None:
    good = b"as released"
    release.files["tool"] = good
    tool = releases.Release("tool", release.url, "tool")
    pin(checkout.root, "tool", "1.0", good)
    folder = user_cache.folder()
    folder.mkdir(parents=True, mode=0o777)
    (folder / hashlib.sha256(good).hexdigest()).write_bytes(b"swapped")
    releases.fetch(checkout, tool, "1.0", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == good
    assert folder.stat().st_mode & 0o777 == 0o700
    count = len(release.requests)
    releases.fetch(checkout, tool, "1.0", tmp_path / "again")
    assert ((tmp_path / "again").read_bytes(), len(release.requests)) == (good, count)
    (folder / hashlib.sha256(good).hexdigest()).write_bytes(b"swapped again")
    del release.files["tool"]
    with pytest.raises(net.UnavailableError, match="HTTP 404"):
        releases.fetch(checkout, tool, "1.0", tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_pin_replaces_no_hash(checkout: Checkout, release: Release) -> None:
    tool = releases.Release("tool", release.url, "{machine}")
    release.files |= {"amd64": b"one", "arm64": b"two"}
    pin(checkout.root, "tool", "1.0", b"as it was")
    assert releases.pin(checkout, {tool: "1.0"}) == 0
    pinned = releases._pins(checkout)["tool"]["1.0"]
    other = {"amd64": "arm64", "arm64": "amd64"}[apt.machine()]
    assert pinned == {
        apt.machine(): hashlib.sha256(b"as it was").hexdigest(),
        other: hashlib.sha256(release.files[other]).hexdigest(),
    }
    assert releases.pin(checkout, {tool: "2.0", releases.Release("none", release.url, "none"): "1"}) == 2
    assert [*releases._pins(checkout)] == ["tool"]
    assert [*releases._pins(checkout)["tool"]] == ["2.0"]


def test_download_is_from_an_address_without_a_password_alone() -> None:
    for url in ("https://a.example/x", "https://a.example:8443/x", "http://127.0.0.1:1/x", "http://localhost/x"):
        net.check_scheme(url)
    refused = {
        "is not an https:// address": [
            "http://a.example/x",
            "ftp://a.example/x",
            "file:///x",
            "https:///x",
            "https://[x",
        ],
        "an address with user:password@ is not taken": ["https://me:word@a.example/x", "https://me@a.example/x"],
    }
    for line, urls in refused.items():
        for url in urls:
            with pytest.raises(net.UnavailableError, match=re.escape(line)):
                net.check_scheme(url)


def test_redirection_from_https_to_http_is_refused(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.files["tool"] = b"what a stranger put in"

    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{release.url}/tool")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem, _ = certificate(tmp_path, "127.0.0.1")
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "root.pem"))
    try:
        with pytest.raises(net.UnavailableError, match="redirects to http://127.0.0.1:.*, which is not encrypted"):
            net.fetch(f"https://127.0.0.1:{server.server_port}/tool", tmp_path / "target")
    finally:
        server.shutdown()
    assert release.requests == []
