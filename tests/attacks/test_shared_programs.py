"""Programs that a user's checkouts share run with the user's rights: nobody else can put one there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from toolchain.machine import user_cache

KEY = "0" * 64
STRANGER = 65534


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built program in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    program = tmp_path / "built"
    program.write_bytes(b"built")
    user_cache.keep_program("tool", KEY, program)
    [kept] = user_cache.folder().iterdir()
    return kept


def taken(tmp_path: Path, key: str = KEY) -> bytes | None:
    target = tmp_path / "bin/tool"
    return target.read_bytes() if user_cache.take_program("tool", key, target) else None


def test_built_program_is_taken_by_another_checkout(kept: Path, tmp_path: Path) -> None:
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert taken(tmp_path) == b"built"
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert [*(tmp_path / "bin").iterdir()] == [tmp_path / "bin/tool"]


def test_program_of_other_sources_is_not_taken(kept: Path, tmp_path: Path) -> None:
    assert kept.exists()
    assert taken(tmp_path, "1" * 64) is None


def _swapped(kept: Path) -> None:
    kept.write_bytes(b"swapped")


def _linked(kept: Path) -> None:
    evil = kept.parent.parent / "evil"
    evil.write_bytes(b"built")
    kept.unlink()
    kept.symlink_to(evil)


def _pipe(kept: Path) -> None:
    kept.unlink()
    os.mkfifo(kept)


def _writable(kept: Path) -> None:
    kept.chmod(0o666)


def _folder_writable(kept: Path) -> None:
    kept.parent.chmod(0o777)


def _folder_linked(kept: Path) -> None:
    kept.parent.rename(kept.parent.with_name("other"))
    kept.parent.symlink_to("other")


def _of_stranger(kept: Path) -> None:
    os.chown(kept, STRANGER, STRANGER)


def _folder_of_stranger(kept: Path) -> None:
    os.chown(kept.parent, STRANGER, STRANGER)


@pytest.mark.parametrize("attack", [_swapped, _linked, _pipe, _writable, _folder_writable, _folder_linked])
def test_program_that_others_could_write_is_not_run(kept: Path, tmp_path: Path, attack: Callable[[Path], None]) -> None:
    attack(kept)
    assert taken(tmp_path) is None
    assert not (tmp_path / "bin/tool").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give a file away")
@pytest.mark.parametrize("attack", [_of_stranger, _folder_of_stranger])
def test_program_of_another_user_is_not_run(kept: Path, tmp_path: Path, attack: Callable[[Path], None]) -> None:
    attack(kept)
    assert taken(tmp_path) is None


def test_what_others_put_in_the_folder_goes(kept: Path, tmp_path: Path) -> None:
    kept.parent.chmod(0o777)
    planted = kept.with_name(f"tool-{KEY}-{hashlib.sha256(b'planted').hexdigest()}")
    planted.write_bytes(b"planted")
    (tmp_path / "built").write_bytes(b"built anew")
    user_cache.keep_program("tool", KEY, tmp_path / "built")
    assert taken(tmp_path) == b"built anew"
    assert not planted.exists()


def test_cache_that_cannot_be_written_costs_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    user_cache.keep_program("tool", KEY, tmp_path / "file")
    assert taken(tmp_path) is None
