"""What the provider says as something ends: a line to the engine of Pulumi, the end of a connection to Docker's."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from pulumi.runtime.proto import engine_pb2

from toolchain.provider import provider_base
from toolchain.provider.docker_api import session


def test_closed_session_ends_for_who_reads_it() -> None:
    """Another thread may hold the connection: with its own end alone the daemon would wait for more."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    with theirs, ours.dup():
        session._close(ours)
        assert theirs.recv(1) == b""


def test_line_of_a_resource_goes_to_the_engine() -> None:
    lines: list[Any] = []
    host = provider_base.Host("")
    host._stub = SimpleNamespace(Log=lambda request, **_: lines.append(request))  # type: ignore[assignment]
    host.log("urn:x", "pushed", "WARNING", ephemeral=True)
    [line] = lines
    assert (line.urn, line.message, line.ephemeral) == ("urn:x", "pushed", True)
    assert line.severity == engine_pb2.LogSeverity.Value("WARNING")


def test_status_line_shows_the_newest_text_at_its_end() -> None:
    shown: list[str] = []
    line = provider_base.StatusLine(shown.append, 3600)
    line.flush()
    for text in ("a", "b", "c"):
        line(text)
    line.flush()
    line.flush()
    assert shown[-1] == "c"
    assert "b" not in shown
