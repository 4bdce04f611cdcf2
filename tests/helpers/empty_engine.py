"""A Docker engine beside the one of the checkout, which has no images and no cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers.needs import needs
from toolchain.checkout import Checkout
from toolchain.parts import docker_engine


@contextmanager
def started(*, under: Sequence[str] = (), options: Sequence[str] = ()) -> Iterator[str]:
    """Start an empty engine, as :func:`docker_engine.start_own`; yield its address, whose path is short enough."""
    needs("root")
    with TemporaryDirectory(prefix="slipway-", dir="/tmp") as folder:
        checkout = Checkout(Path(folder))
        try:
            yield docker_engine.start_own(checkout, under=under, options=options)
        finally:
            docker_engine.stop(checkout)
