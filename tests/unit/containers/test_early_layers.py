"""The archives of an image where the engine does not take one of its lowest layers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from containers.engine import early_layers
from containers.engine.connection import Address
from containers.engine.early_layers import EngineImage
from containers.engine.engine import EngineError, Silent
from containers.errors import SlipwayError


@pytest.mark.parametrize("refusal", [EngineError(500, "no"), Silent("busy"), SlipwayError("no JSON")], ids=str)
def test_all_layers_come_where_the_engine_takes_no_lowest(refusal: SlipwayError) -> None:
    asked: list[str] = []

    @contextmanager
    def request(method: str, path: str, **_: object) -> Iterator[object]:
        asked.append(f"{method} {path}")
        if path == "/images/load":
            raise refusal
        yield SimpleNamespace(text=lambda: json.dumps([{"Size": 10**9}] * 4))

    engine: Any = SimpleNamespace(address=Address("unix:///x"), json=lambda _: {}, request=request)
    diff_ids = [f"sha256:{layer}" for layer in "abcd"]
    with early_layers.archives(EngineImage("sha256:1", diff_ids, engine), diff_ids) as archives:
        assert len([*archives]) == 1
    assert {"POST /images/load", "GET /images/sha256:1/get"} <= {*asked}
