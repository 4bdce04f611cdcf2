"""A registry names its token server and redirects: none leads this machine to where the registry itself is not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.registry.client import Repository
from containers.registry.guarded_adapter import kind
from containers.registry.transport import Transport
from maintenance.refresh import apt_index, torch_table
from tests.fakes.loopback import serving
from tests.helpers.refusals import refusal_line

INNER = ("169.254.169.254", "10.0.0.1", "[fe80::1]", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "2852039166")


@contextmanager
def registry(headers: dict[str, str], status: int, body: str = "", heard: list[str] | None = None) -> Iterator[str]:
    """Serve one response; ``heard`` gets the logins that are sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if heard is not None:
                heard.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_HEAD = do_GET  # noqa: N815 - the name that the server calls

        def log_message(self, *_: Any) -> None:
            return

    with serving(Handler) as address:
        yield address


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that a connection was tried to, past this machine's own."""
    tried: list[str] = []
    connect = socket.socket.connect

    def noted(self: socket.socket, address: Any) -> None:
        if not str(address[0]).startswith("127."):
            tried.append(str(address[0]))
            raise ConnectionRefusedError
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", noted)
    return tried


@pytest.mark.parametrize("host", INNER)
@pytest.mark.parametrize("by", ["realm", "redirect"])
def test_registry_leads_to_no_inner_address(by: str, host: str, connections: list[str]) -> None:
    headers = {"Location": f"https://{host}/x"}
    if by == "realm":
        headers = {"WWW-Authenticate": f'Bearer realm="https://{host}/x",service="s"'}
    with registry(headers, 401 if by == "realm" else 307) as address:
        line = refusal_line(Repository(f"{address}/a/b:1").manifest)
    assert "it leads to" in line
    assert connections == []


TABLES: dict[str, Callable[[str], object]] = {
    "apt": lambda address: apt_index.versions(address, "libnccl2"),
    "versions": lambda address: torch_table.versions(address, "torch"),
    "rows": lambda address: list(torch_table.table(address, "vllm")),
}


@pytest.mark.parametrize("host", INNER)
@pytest.mark.parametrize("read", TABLES.values(), ids=TABLES)
def test_archive_or_index_leads_to_no_inner_address(
    read: Callable[[str], object], host: str, connections: list[str]
) -> None:
    with registry({"Location": f"https://{host}/x"}, 302) as address:
        assert "it leads to" in refusal_line(lambda: read(f"http://{address}"))
    assert connections == []


@pytest.mark.parametrize("host", INNER)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_wheels_of_an_index_are_at_no_inner_address(scheme: str, host: str, connections: list[str]) -> None:
    link = f'<a href="{scheme}://{host}/vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl">x</a>'
    with registry({}, 200, link) as address:
        assert "it leads to" in refusal_line(lambda: list(torch_table.table(f"http://{address}", "vllm")))
    assert connections == []


@pytest.mark.parametrize(
    "read", [*TABLES.values(), lambda address: Repository(f"{address.removeprefix('http://')}/a/b:1").manifest()]
)
def test_redirect_fetches_no_login_out_of_netrc(
    read: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever redirects chooses the host, and would have this machine send the user's login for it."""
    (tmp_path / "netrc").write_text("machine localhost login me password canary\ndefault login me password canary\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    heard: list[str] = []
    with registry({}, 200, heard=heard) as target:
        elsewhere = f"http://localhost:{target.rpartition(':')[2]}/"
        with registry({"Location": elsewhere}, 302, heard=heard) as address, suppress(SlipwayError):
            read(f"http://{address}")
    assert len(heard) > 1, "it was followed"
    assert set(heard) == {""}


@pytest.mark.parametrize(
    "realm", ["https://127.0.0.1:1/t", "https://localhost:1/t", "https://[::1]:1/t", "https://0/t"]
)
def test_public_registry_leads_to_no_loopback(realm: str, connections: list[str]) -> None:
    transport = Transport("r.example/a/b:1", "r.example", "a/b", None)
    with pytest.raises(ValueError, match="it leads to .* a loopback address"):
        transport._session.get(realm)
    assert connections == []


def test_name_that_moves_to_an_inner_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, connections: list[str]
) -> None:
    """By the time of the connection the name is another address's."""
    row = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: [row] if host == "moved.example" else _fail())
    transport = Transport("r.example/a/b:1", "r.example", "a/b", None)
    with pytest.raises(ValueError, match=r"moved\.example \(169\.254\.169\.254\), a link-local address"):
        transport._session.get("https://moved.example/t")
    assert connections == []


def _fail() -> Any:
    raise socket.gaierror("no such name")


def test_registry_with_https_leads_to_https_alone(connections: list[str]) -> None:
    transport = Transport("r.example/a/b:1", "r.example", "a/b", None)
    with pytest.raises(ValueError, match="which is not https"):
        transport._session.get("http://token.example/t")
    assert connections == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("140.82.112.3", "public"),
        ("2606:4700::1", "public"),
        ("100.64.0.1", "private"),
        ("fd12::1", "private"),
        ("::ffff:10.1.2.3", "private"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("2002:a9fe:a9fe::1", "link-local"),
        ("0.0.0.0", "loopback"),
        ("fe80::1%eth0", "link-local"),
        ("168.63.129.16", "link-local"),
        ("224.0.0.1", "link-local"),
    ],
)
def test_address_has_the_kind_of_where_it_leads(address: str, expected: str) -> None:
    assert kind(address) == expected
