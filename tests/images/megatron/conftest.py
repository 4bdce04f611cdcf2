"""The upstreams of the Megatron-LM image, and images built of them, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.images.engine import Image, docker
from tests.images.megatron.upstreams import Upstreams, build_stack

Built = Callable[..., Image]


@pytest.fixture(scope="session")
def upstreams() -> Iterator[Upstreams]:
    """What the stacks fetch, served to builds."""
    made = Upstreams()
    yield made
    made.server.close()


@pytest.fixture(scope="session")
def built(upstreams: Upstreams) -> Iterator[Built]:
    """Have a stack's image, with other keys than its file's if some are given, built the first time."""
    images: dict[str, Image] = {}

    def get(stack: str = "aks-megatron", **more: Any) -> Image:
        key = f"{stack} {more}"
        if key not in images:
            images[key] = build_stack(upstreams, stack, **more)
        return images[key]

    yield get
    if images:
        docker("rmi", "--force", *(image.tag for image in images.values()))
