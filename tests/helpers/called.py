"""Runs of pytest in forks of one process, and which functions of the product each test calls.

A fork has pytest and the other packages imported already, and none of the product or of the tests.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

PACKAGES: Final = (
    "xdist.scheduler",
    "hypothesis.strategies",
    "pydantic",
    "yaml",
    "docker",
    "requests",
    "flask",
    "pulumi",
)
"""What most tests import, beside the product."""


Function = tuple[str, int]
"""A function: its module's path below the root, and its first line, that of its first decorator."""


class Calls:
    """A plugin of pytest: notes what each test calls, and how long it takes.

    What a file's import and its fixtures call is noted for the file: other tests of it may depend on that too.
    """

    def __init__(self, root: Path, folders: Iterable[str]) -> None:
        self.calls: dict[str, set[Function]] = {}
        self.seconds: dict[str, float] = {}
        self._root = f"{root}/"
        self._folders = tuple(f"{root}/{folder}/" for folder in folders)
        self._now: set[Function] = set()

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if code.co_name != "<module>" and code.co_filename.startswith(self._folders):
            self._now.add((code.co_filename.removeprefix(self._root), code.co_firstlineno))

    @contextmanager
    def _noted(self, place: str) -> Iterator[None]:
        self._now, begun = self.calls.setdefault(place, set()), time.monotonic()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.seconds[place] = self.seconds.get(place, 0) + time.monotonic() - begun

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        with self._noted(collector.nodeid.partition("::")[0]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._noted(item.nodeid.partition("::")[0]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._noted(item.nodeid):
            return (yield)


class Chosen:
    """A plugin of pytest: runs those tests that are named, by themselves or by their file."""

    def __init__(self, tests: Collection[str]) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [each for each in items if {each.nodeid, each.nodeid.partition("::")[0]} & set(self._tests)]


def prepare() -> None:
    """Import what each fork needs."""
    for name in PACKAGES:
        importlib.import_module(name)


def _forked(root: Path, arguments: list[str], plugins: list[object], log: Path) -> int:
    """Run pytest in this process, which has just been forked."""
    os.setsid()
    os.chdir(root)
    gc.freeze()  # pytest collects garbage as it ends, and would search all that the process had before
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    sys.stdout = sys.stderr = os.fdopen(output, "w", buffering=1)  # where another pytest captures those of this process
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[0] = str(root)
    return pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", "-n0", *arguments], plugins)


def log_of(root: Path) -> Path:
    """Return the file that pytest's words about a checkout are in: beside it, as a test may look for what is new in it."""
    return root.with_suffix(".log")


def run(root: Path, files: Iterable[str], seconds: float, *plugins: object, options: Iterable[str] = ("-x",)) -> str:
    """Return `killed` if a test of a checkout fails, `survived` if all pass, `out of time` if they take longer.

    A plugin that has `calls` is filled with what the fork's has noted. pytest's words are in :func:`log_of` the root.
    """
    notes = [each for each in plugins if isinstance(each, Calls)]
    temporary = tempfile.mkdtemp(prefix="mu-")
    pid = os.fork()
    if not pid:
        code: int = 70
        try:
            os.environ["TMPDIR"] = tempfile.tempdir = temporary
            code = _forked(root, [*options, *files], list(plugins), log_of(root))
            Path(temporary, "notes").write_bytes(pickle.dumps([(each.calls, each.seconds) for each in notes]))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        end = time.monotonic() + seconds
        while not (done := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                return "out of time"
            time.sleep(0.05)
        for each, (calls, took) in zip(notes, pickle.loads(Path(temporary, "notes").read_bytes()), strict=True):
            each.calls.update(calls)
            each.seconds.update(took)
        return "survived" if os.waitstatus_to_exitcode(done[1]) in {0, 5} else "killed"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        shutil.rmtree(temporary, ignore_errors=True)
