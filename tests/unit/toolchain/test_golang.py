"""Programs of Go that a user's checkouts share."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers import user_cache
from toolchain.checkout import Checkout
from toolchain.machine import golang


def test_program_of_other_options_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []

    def take_file(_name: str, key: str, _target: Path) -> bool:
        keys.append(key)
        return True

    def build(ldflags: str = "", unoptimized: tuple[str, ...] = ()) -> None:
        golang.build(Checkout(tmp_path), module, "./x", tmp_path / "x", ldflags=ldflags, unoptimized=unoptimized)

    monkeypatch.setattr(user_cache, "take_file", take_file)
    module = next(path.parent.name for path in sorted(golang.MODULES.glob("*/go.sum")))
    build()
    build()
    build(ldflags="-X a=b")
    build(unoptimized=("a/...",))
    monkeypatch.setattr(golang, "_OPTIONS", ("-race",))
    build()
    assert [keys.index(key) for key in keys] == [0, 0, 2, 3, 4]
