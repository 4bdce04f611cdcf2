"""Requests to a registry, and to the public or own addresses to which it redirects.

A registry names its token server and redirects. It may not have this machine ask what the registry cannot reach itself.
The address of the connection counts: a name is resolved once, judged, and connected to.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NameResolutionError

from containers.registry.reference import on_loopback

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_METADATA: Final = frozenset({"fd00:ec2::254", "100.100.100.200", "168.63.129.16"})
"""Metadata services of AWS by IPv6, of Alibaba and of Azure; the others have link-local addresses."""


class GuardedAdapter(HTTPAdapter):
    """Sends the requests of a session to the registry at ``address``, a URL, and to where it leads.

    Public addresses are open to all. Of the others those of the registry's own kind are: of a registry on loopback
    loopback, of one in a private network private addresses. The kind is that of the first connection to the registry. A
    registry with https leads to https alone.

    Raises ValueError: by a request, for another address.
    """

    def __init__(self, address: str, *, verify: bool = True, **options: Any) -> None:
        url = urlsplit(address)
        self._host = (url.hostname or "").lower()
        self._plain = url.scheme == "http"
        self._kind = ""
        self._verify = verify
        super().__init__(**options)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Make the pools, whose connections are judged."""
        super().init_poolmanager(*arguments, **options)
        guard = self

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return guard._connected(self, super()._new_conn)

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return guard._connected(self, super()._new_conn)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "ssl_context": guard._trusted})

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        """What this machine trusts, read for the first connection with TLS: it has hundreds of certificates."""
        context = ssl.create_default_context()
        context.check_hostname = self._verify  # urllib3 turns the rest off, and fails if this is on
        return context

    def proxy_manager_for(self, proxy: str, **options: Any) -> ProxyManager:
        """Return the pools of a proxy; they trust what this machine trusts, beside requests' own certificates."""
        pools: ProxyManager = super().proxy_manager_for(proxy, ssl_context=self._trusted, **options)
        return pools

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request, a redirected one too. A proxy connects by itself, so literal addresses are judged here."""
        url = urlsplit(request.url or "")
        host = (url.hostname or "").lower()
        if url.scheme != "https" and not (self._plain and (host == self._host or on_loopback(host))):
            raise ValueError(f"it leads to {url.scheme}://{url.netloc}, which is not https")
        if host != self._host:
            try:
                self._judge(host, _literal(host))
            except OSError:  # a name
                if host == "localhost" or host.endswith(".localhost"):
                    self._judge(host, "127.0.0.1")
        return super().send(request, *arguments, **options)

    def _connected(self, connection: HTTPConnection, connect: Any) -> socket.socket:
        """Connect to an address of a connection's host that was judged, and not to its name."""
        name = connection._dns_host  # noqa: SLF001 - what urllib3 connects to; `host` is what TLS expects
        try:
            addresses = socket.getaddrinfo(name, connection.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise NameResolutionError(name, connection, socket.gaierror(*error.args)) from error
        last: Exception | None = None
        for *_, address in addresses:
            self._judge(name.rstrip(".").lower(), str(address[0]))
            try:
                connection._dns_host = str(address[0])  # noqa: SLF001
                opened: socket.socket = connect()
            except Exception as error:  # the next address may answer
                last = error
                continue
            finally:
                connection._dns_host = name  # noqa: SLF001
            if name.rstrip(".").lower() == self._host:
                self._kind = self._kind or kind(str(address[0]))
            return opened
        raise last or NameResolutionError(name, connection, socket.gaierror("no address"))

    def _judge(self, host: str, address: str) -> None:
        if (host == self._host and not self._kind) or kind(address) in {"public", self._kind}:
            return
        where = host if host == address else f"{host} ({address})"
        raise ValueError(f"it leads to {where}, a {kind(address)} address that the registry itself does not have")


def kind(address: str) -> str:
    """Return whether an IP address is ``public``, ``private``, ``loopback`` or ``link-local``.

    An IPv6 address with one of IPv4 inside counts as the inner one.
    """
    ip: Any = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6:
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64 or (int(ip) >> 32 == 0 and int(ip) > 1):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        ip = inner or ip
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    if ip.is_link_local or ip.is_multicast or str(ip) in _METADATA:
        return "link-local"
    return "public" if ip.is_global else "private"


def _literal(host: str) -> str:
    """Return the IP address of a host, in any form that the system reads. Raises OSError for a name."""
    addresses = socket.getaddrinfo(host.rstrip("."), None, flags=socket.AI_NUMERICHOST)
    return str(addresses[0][4][0])
