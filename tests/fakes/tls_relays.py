"""Replicas of a build service on this machine: relays to engines, each of which asks for a certificate of its own."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from components.runners.kubernetes.certificates import make
from tests.fakes.docker_relay import Relay


def server_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    """Return the TLS of a server with a certificate, as PEM, whose clients must have one of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.write_text(cert + key)
        context.load_cert_chain(pair)
    return context


@contextmanager
def relays(engines: Mapping[str, str]) -> Iterator[dict[str, tuple[Relay, dict[str, str]]]]:
    """Serve a relay to each engine; yield, by the engines' names, the relay and the certificates of its clients."""
    with ExitStack() as stack:
        served = {}
        for name, engine in engines.items():
            pem = make(["127.0.0.1"])
            context = server_context(pem["ca"], pem["server_cert"], pem["server_key"])
            relay = stack.enter_context(Relay(engine, context))
            served[name] = (relay, {"ca": pem["ca"], "cert": pem["client_cert"], "key": pem["client_key"]})
        yield served
