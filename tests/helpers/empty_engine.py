"""A Docker engine beside the one of the checkout, which has no images and no cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers.needs import needs
from toolchain.checkout import Checkout
from toolchain.parts import docker_engine


@contextmanager
def started() -> Iterator[str]:
    """Start an empty engine; yield its address, whose path is short enough for a socket."""
    needs("root")
    with TemporaryDirectory(prefix="slipway-", dir="/tmp") as folder:
        checkout = Checkout(Path(folder))
        try:
            yield docker_engine.start_own(checkout)
        finally:
            docker_engine.stop(checkout)
