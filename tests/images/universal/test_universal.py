"""The universal images, built whole against stand-ins of the upstreams, asked what they promise."""

from __future__ import annotations

import pytest

from tests.images.universal.conftest import STACKS, Built


@pytest.mark.parametrize("stack", STACKS)
def test_the_whole_chain_is_built(built: Built, stack: str) -> None:
    made = built(stack)
    print(made.image("train").run("pip", "list"))
