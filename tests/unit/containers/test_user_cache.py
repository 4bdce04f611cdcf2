"""What a user's checkouts share: for how long it is kept, and what is left of a write that fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from containers import user_cache

DAY = 24 * 3600


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return user_cache.folder()


def put(file: Path, days: float) -> None:
    """Have a file that nothing has written or taken for these days."""
    file.touch()
    os.utime(file, (time.time() - days * DAY,) * 2)


def test_what_is_kept_is_removed_after_its_seconds(folder: Path) -> None:
    user_cache.keep_content("debian", "0" * 64, b"now")
    [now] = folder.iterdir()
    for name, days in {"debian": 8, "tool": 8, "layer": 31}.items():
        put(folder / f"{name}-{'1' * 64}-0", days)
    user_cache.keep_content("debian", "0" * 64, b"now", 7 * DAY)
    user_cache.keep_content("tool", "0" * 64, b"now")
    user_cache.keep_content("layer", "0" * 64, b"now")
    left = {file.name.partition("-")[0] for file in folder.iterdir() if "-1" in file.name}
    assert (left, now.exists()) == ({"tool"}, True)


def test_failed_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        user_cache.keep_content("layer", "0" * 64, b"now")
    assert not [*folder.iterdir()]


def test_unfinished_file_of_a_killed_run_is_removed(folder: Path) -> None:
    user_cache.keep_content("layer", "0" * 64, b"now")
    put(folder / "tmp_old", 1.1)
    put(folder / "tmp_new", 0.9)
    user_cache.keep_content("layer", "1" * 64, b"now")
    assert {file.name for file in folder.glob("tmp*")} == {"tmp_new"}
