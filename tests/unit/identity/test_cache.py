"""Results kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from stacks.identity.cache import Cache


def test_cache_computes_a_kept_value_once(tmp_path: Path) -> None:
    computed: list[int] = []
    for _ in range(2):
        assert Cache(tmp_path, "x").get(["key", 1], lambda: computed.append(1) or {"a": 1}) == {"a": 1}
    assert computed == [1]


def test_cache_keeps_no_empty_value(tmp_path: Path) -> None:
    assert Cache(tmp_path, "x").get("key", dict) == {}
    assert Cache(tmp_path, "x").get("key", lambda: {"a": 1}) == {"a": 1}


def test_cache_that_cannot_be_written_computes(tmp_path: Path) -> None:
    (tmp_path / ".slipway").write_text("")
    assert Cache(tmp_path, "x").get("key", lambda: 1) == 1


def test_cache_that_is_full_drops_the_oldest(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "x")
    folder = tmp_path / ".slipway/cache/x"
    for number in range(256):
        cache.get(number, lambda number=number: [number])  # type: ignore[misc]
    for place, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (place, place))
    oldest = sorted(folder.iterdir())[:129]
    cache.get("one more", lambda: ["new"])
    assert len(list(folder.iterdir())) == 128
    assert not any(path.exists() for path in oldest)
    assert cache.get("one more", lambda: ["other"]) == ["new"]
