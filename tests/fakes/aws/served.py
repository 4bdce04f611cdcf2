"""moto as AWS, behind an address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class _OneByOne:
    """moto, one request at a time: it walks what other threads change (moto 5.2.5, iam/models.py:2164)."""

    def __init__(self) -> None:
        self._moto, self._lock = DomainDispatcherApplication(create_backend_app), Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            return list(self._moto(environ, start_response))


@contextmanager
def aws() -> Iterator[str]:
    """Open a block with the address of an AWS of its own. Ending it takes half a second."""
    server = make_server("127.0.0.1", 0, _OneByOne(), threaded=True, request_handler=MotoRequestHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
