"""The bytecode that a layer has: of which modules, with which bytes."""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT

SCRIPT = ROOT / "dockerfiles/common/layers/compile-modules"
SETS = "NAMES = {'alpha', 'beta', 'gamma', None}\n\ndef has(name):\n    return name in {'alpha', 'beta', 'delta'}\n"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder of modules, as an environment has it."""
    folder = tmp_path / "lib/python3.11/site-packages"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack/__init__.py").write_text(SETS)
    (folder / "pack/inner.py").write_text("from pack import has\nWORDS = ['alpha', 'inner']\n")
    return folder


def compiled(monkeypatch: pytest.MonkeyPatch, *folders: Path, began: float = 0.0) -> None:
    """Compile the modules of folders, and of nothing else that this Python can import."""
    monkeypatch.setattr(sys, "path", ["", *map(str, folders)])
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(began)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def bytecode(source: Path) -> bytes:
    return Path(importlib.util.cache_from_source(str(source))).read_bytes()


def header(source: Path, flags: int) -> bytes:
    """Return the first bytes of a source's bytecode by PEP 552: 1 is a hash, 3 one that Python compares."""
    return importlib.util.MAGIC_NUMBER + bytes([flags, 0, 0, 0]) + importlib.util.source_hash(source.read_bytes())


def test_bytecode_has_hash_and_path_of_its_source(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(monkeypatch, library)
    for source in (library / "pack/__init__.py", library / "pack/inner.py"):
        assert bytecode(source)[:16] == header(source, 1)
        assert marshal.loads(bytecode(source)[16:]).co_filename == str(source)


def test_bytecode_outside_of_pythons_folders_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "project/module.py"
    source.parent.mkdir()
    source.write_text(SETS)
    compiled(monkeypatch, source.parent)
    assert bytecode(source)[:16] == header(source, 3)


def test_bytecode_is_the_same_beside_other_modules(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither other modules, nor their order, environment or number of processors change a byte."""
    source = library / "pack/inner.py"
    source.write_text(
        f"{SETS}PAIRS = '{{', 'x', {{'x', '225'}}\n\ndef digits(name):\n    return name in {{'225', '226', '{{'}}\n"
    )
    compiled(monkeypatch, library)
    before = bytecode(source)
    for number in range(40):
        (library / f"a{number}.py").write_text(
            f"{SETS}from pack.inner import WORDS\nALPHA = 'inner', 'pack', '226', {number}\nx = dict(x='{{')\n"
        )
    source.with_name("__pycache__").joinpath(Path(importlib.util.cache_from_source(str(source))).name).unlink()
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    compiled(monkeypatch, library)
    assert bytecode(source) == before


def test_changed_source_is_compiled_again(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytecode would else be taken for that of the source."""
    compiled(monkeypatch, library)
    kept, source = library / "pack/inner.py", library / "pack/__init__.py"
    before = Path(importlib.util.cache_from_source(str(kept))).stat().st_mtime_ns
    time.sleep(0.1)
    began = time.time()
    time.sleep(0.1)
    source.write_text(f"{SETS}MORE = 1\n")
    compiled(monkeypatch, library, began=began)
    assert bytecode(source)[:16] == header(source, 1)
    assert Path(importlib.util.cache_from_source(str(kept))).stat().st_mtime_ns == before


def test_valid_bytecode_of_a_parent_stays(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, stale = library / "pack/inner.py", library / "pack/__init__.py"
    for source in (kept, stale):
        py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    os.utime(stale, (1, 1))
    before = bytecode(kept)
    compiled(monkeypatch, library)
    assert bytecode(kept) == before
    assert bytecode(stale)[:16] == header(stale, 1)


def test_source_for_another_python_has_no_bytecode(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (library / "template.py").write_text("print 'no'\n")
    (library / "nul.py").write_bytes(b"\0")
    (library / "latin.py").write_bytes(b"WORD = '\xe9'\n")
    compiled(monkeypatch, library)
    assert sorted(path.name for path in library.rglob("*.pyc")) == sorted(
        Path(importlib.util.cache_from_source(name)).name for name in ("__init__.py", "inner.py")
    )


def test_link_to_a_folder_above_ends(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (library / "pack/up").symlink_to(library)
    compiled(monkeypatch, library)
    assert len([*library.rglob("*.pyc")]) == 2


def test_bytecode_has_mode_and_owner_of_its_source(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an image whose group may install packages."""
    source = library / "pack/inner.py"
    source.chmod(0o664)
    source.parent.chmod(0o2775)
    if os.geteuid() == 0:
        os.chown(source, 1000, 1000)
        os.chown(source.parent, 1000, 1000)
        source.parent.chmod(0o2775)
    compiled(monkeypatch, library)
    written = Path(importlib.util.cache_from_source(str(source)))
    for path, like in (written, source), (written.parent, source.parent):
        there, expected = path.stat(), like.stat()
        assert (there.st_mode, there.st_uid, there.st_gid) == (expected.st_mode, expected.st_uid, expected.st_gid)


def test_import_takes_the_bytecode(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(monkeypatch, library)
    command = [sys.executable, "-v", "-c", "import pack.inner"]
    environment = {**os.environ, "PYTHONPATH": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for name in ("__init__", "inner"):
        assert (
            f"# code object from '{importlib.util.cache_from_source(str(library / f'pack/{name}.py'))}'" in done.stderr
        )
