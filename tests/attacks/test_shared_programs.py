"""Programs that a user's checkouts share run with the user's rights: nobody else can put one there."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containers import user_cache

KEY = "0" * 64
STRANGER = 65534


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built program in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    program = tmp_path / "built"
    program.write_bytes(b"built")
    user_cache.keep_file("tool", KEY, program)
    [kept] = user_cache.folder().iterdir()
    return kept


def taken(tmp_path: Path, key: str = KEY) -> bytes | None:
    target = tmp_path / "new/bin/tool"
    return target.read_bytes() if user_cache.take_file("tool", key, target) else None


def test_built_program_is_taken_by_another_checkout(kept: Path, tmp_path: Path) -> None:
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert taken(tmp_path) == b"built"
    (tmp_path / "new/bin/.tool.new").touch()  # of a run that was ended
    assert taken(tmp_path) == b"built"
    assert (tmp_path / "new/bin/tool").stat().st_mode & 0o777 == 0o755
    assert [*(tmp_path / "new/bin").iterdir()] == [tmp_path / "new/bin/tool"]


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
    assert not (tmp_path / "new/bin/tool").exists()


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
    user_cache.keep_file("tool", KEY, tmp_path / "built")
    assert taken(tmp_path) == b"built anew"
    assert not planted.exists()


def test_cache_that_cannot_be_written_costs_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    user_cache.keep_file("tool", KEY, tmp_path / "file")
    assert taken(tmp_path) is None


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A sticky folder that everybody may write to, such as /tmp, as the home."""
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        home = Path(name)
        home.chmod(0o1777)
        monkeypatch.setenv("HOME", name)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        yield home


EXCHANGE = """
import ctypes, os
os.chdir({folder!r})
libc = ctypes.CDLL(None)
print(flush=True)
while True:
    libc.renameat2(-100, b"slipway", -100, b"mine", 2)
    for name in os.listdir("mine") if os.access("mine", os.R_OK) else ():
        if name.startswith("tmp"):
            try:
                os.unlink("mine/" + name)
                os.symlink({target!r}, "mine/" + name)
            except OSError:
                pass
"""
"""Exchanges the folder with the stranger's own all the time, and leads what is written there to another file."""


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
def test_stranger_with_the_parent_gets_nothing_written(home: Path, tmp_path: Path) -> None:
    """Whoever has ~/.cache in a home like /tmp renames the folder between two calls."""
    for folder in (home / ".cache", home / ".cache/mine"):
        folder.mkdir()
        os.chown(folder, STRANGER, STRANGER)
    (home / ".cache/slipway").mkdir(mode=0o700)
    victim = home / "victim"
    victim.write_text("root's")
    (tmp_path / "built").write_bytes(b"built")
    words = ["/usr/bin/python3", "-I", "-c", EXCHANGE.format(folder=str(home / ".cache"), target=str(victim))]
    with subprocess.Popen(words, user=STRANGER, group=STRANGER, extra_groups=[], stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout
        stranger.stdout.readline()
        for _ in range(2000):
            user_cache.keep_file("tool", KEY, tmp_path / "built")
        stranger.kill()
    assert victim.read_text() == "root's"
    assert [path for path in (home / ".cache").rglob("*") if path.is_file()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
@pytest.mark.parametrize("linked", [False, True])
def test_parent_of_a_stranger_is_not_read(kept: Path, home: Path, tmp_path: Path, linked: bool) -> None:
    if linked:
        (home / ".cache").symlink_to(kept.parent.parent)
        os.chown(home / ".cache", STRANGER, STRANGER, follow_symlinks=False)
    else:
        kept.parent.parent.rename(home / ".cache")
        assert taken(tmp_path) == b"built"
        os.chown(home / ".cache", STRANGER, STRANGER)
    assert taken(tmp_path) is None


def test_program_under_umask_000_is_its_users_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "built").write_bytes(b"built" * 1000)
    umask = os.umask(0)
    try:
        user_cache.keep_file("tool", KEY, tmp_path / "built")
        assert taken(tmp_path) == b"built" * 1000
    finally:
        os.umask(umask)
    shared = [path for path in home.rglob("*") if path.stat().st_mode & 0o022]
    assert shared == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
def test_program_is_not_written_to_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens the copy before its hash is known, writes to it afterwards."""
    size = 64 << 20
    (tmp_path / "built").write_bytes(bytes(size))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    user_cache.keep_file("tool", KEY, tmp_path / "built")
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        Path(name).chmod(0o777)
        opening = f"""if True:
            print(flush=True)
            while True:
                try:
                    file = open({name!r} + "/.tool.new", "r+b")
                except OSError:
                    continue
                import time
                time.sleep(2)
                file.write(b"evil")
                break
        """
        words = ["/usr/bin/python3", "-I", "-c", opening]
        with subprocess.Popen(
            words, user=STRANGER, group=STRANGER, extra_groups=[], stdout=subprocess.PIPE
        ) as stranger:
            assert stranger.stdout
            stranger.stdout.readline()
            umask = os.umask(0)
            try:
                assert user_cache.take_file("tool", KEY, Path(name, "tool"))
            finally:
                os.umask(umask)
            try:
                stranger.wait(4)
            except subprocess.TimeoutExpired:
                stranger.kill()
        assert not Path(name, "tool").read_bytes().startswith(b"evil")
