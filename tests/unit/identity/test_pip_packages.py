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
from stacks.identity.dockerfile.pip_packages import SCRIPT, prologue
from stacks.spec import CONTEXT
from tests.fakes.package_index import Index, wheel


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


def download(index: Index, *names: str, to: Path) -> subprocess.CompletedProcess[str]:
    """Run a pip step as the Dockerfiles have them, with the locked script."""
    files = {
        f"{index.address}/files/{name}": hashlib.sha256((index.folder / name).read_bytes()).hexdigest()
        for name in names
    }
    script = to.with_suffix(".sh")
    script.write_text(prologue(files) + (ROOT / CONTEXT / SCRIPT).read_text())
    pip = f"{sys.executable} -m pip --isolated --disable-pip-version-check download --no-cache-dir"
    if (index.folder / "late").exists():
        (index.folder / "late").rename(index.folder / "first-1.0-py3-none-any.whl")
    return subprocess.run(
        ["sh", "-euc", f'{pip} --dest "$1" $(sh "$0") first', script, to],
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
