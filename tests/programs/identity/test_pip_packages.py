"""The page of locked packages, in front of the real pip: what it may install, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from stacks.identity.pip_packages import SCRIPT, prologue
from stacks.spec import CONTEXT
from tests.fakes.package_index import Index, sdist, wheel

BACKEND = """
def build_wheel(folder, settings=None, metadata=None):
    import sys
    from pathlib import Path
    sys.path.insert(0, {checkout!r})
    from tests.fakes.package_index import wheel
    return wheel(Path(folder), "first", "3.0").name
"""
"""A build backend that makes the stand-in's wheel."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An index with a package in two versions, and with what it needs."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        wheel(folder, "first", version, ["second"])
    wheel(folder, "second", "1.0")
    served = Index(folder)
    yield served
    served.close()


def download(index: Index, *names: str, to: Path, verb: str = "download --dest") -> subprocess.CompletedProcess[str]:
    """Run a pip step as the Dockerfiles have them, with the locked script."""
    files = {
        f"{index.address}/files/{name}": hashlib.sha256((index.folder / name).read_bytes()).hexdigest()
        for name in names
    }
    script = to.with_suffix(".sh")
    script.write_text(prologue(files).lines + (ROOT / CONTEXT / SCRIPT).read_text())
    pip = f"{sys.executable} -m pip --isolated --disable-pip-version-check --no-cache-dir {verb}"
    if (index.folder / "late").exists():
        (index.folder / "late").rename(index.folder / names[0])
    return subprocess.run(
        ["sh", "-euc", f'{pip} "$1" $(sh "$0") first', script, to],
        env={**os.environ, "PYTHON_INDEX_URL": index.url, "TMPDIR": str(to.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pip_takes_locked_files_alone(index: Index, tmp_path: Path) -> None:
    done = download(index, "first-1.0-py3-none-any.whl", "second-1.0-py3-none-any.whl", to=tmp_path / "wheels")
    assert done.returncode == 0, done.stderr
    assert {path.name.partition("-py3")[0] for path in (tmp_path / "wheels").iterdir()} == {"first-1.0", "second-1.0"}
    assert not any("simple" in request for request in index.requests)


def test_pip_refuses_what_is_not_locked(index: Index, tmp_path: Path) -> None:
    done = download(index, "first-1.0-py3-none-any.whl", to=tmp_path / "wheels")
    assert done.returncode == 1
    assert "No matching distribution found for second" in done.stderr


def test_pip_refuses_a_file_with_another_hash(index: Index, tmp_path: Path) -> None:
    other = wheel(tmp_path, "first", "1.0", ["second"], code="raise SystemExit\n")
    other.rename(index.folder / "late")
    done = download(index, "first-1.0-py3-none-any.whl", "second-1.0-py3-none-any.whl", to=tmp_path / "wheels")
    assert done.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr


@pytest.fixture
def source(index: Index) -> str:
    """The name of a source distribution of ``first`` on the index, built with ``backend``, which is there too."""
    wheel(index.folder, "backend", "1.0", code=BACKEND.format(checkout=str(ROOT)))
    return sdist(index.folder, "first", "3.0", "backend").name


def test_pip_builds_a_locked_source_with_locked_tools(index: Index, source: str, tmp_path: Path) -> None:
    done = download(index, source, "backend-1.0-py3-none-any.whl", to=tmp_path / "wheels", verb="wheel --wheel-dir")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == ["first-3.0-py3-none-any.whl"]
    assert not any("simple" in request for request in index.requests)


def test_pip_builds_no_source_with_other_tools(index: Index, source: str, tmp_path: Path) -> None:
    done = download(index, source, to=tmp_path / "wheels", verb="wheel --wheel-dir")
    assert done.returncode == 1
    assert "No matching distribution found for backend" in done.stderr


def test_pip_builds_no_source_with_another_hash(index: Index, source: str, tmp_path: Path) -> None:
    sdist(tmp_path, "first", "3.0", "backend", code="raise SystemExit\n").rename(index.folder / "late")
    done = download(index, source, "backend-1.0-py3-none-any.whl", to=tmp_path / "wheels", verb="wheel --wheel-dir")
    assert done.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
