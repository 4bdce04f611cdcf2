"""Addresses of Docker engines."""

from urllib.parse import urlsplit

from containers.registry.reference import on_loopback


def in_clear(engine: str) -> bool:
    """Return whether an engine's address is one without TLS on another machine, where whoever reaches it is root."""
    url = urlsplit(engine)
    return url.scheme in {"tcp", "http"} and not on_loopback(url.hostname or "")
