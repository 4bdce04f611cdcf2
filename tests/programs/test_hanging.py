"""A test that hangs is ended and says what it waits for, whatever it does."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.helpers import hanging

HANGING = """\
import socket, subprocess, threading, time
import pytest
pytestmark = pytest.mark.limit(1)

@pytest.fixture
def slow():
    time.sleep(1234)

def test_subprocess():
    subprocess.run(["sleep", "1234"])

def test_thread():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_catching():
    try:
        time.sleep(1234)
    except Exception:
        pass

def test_setup(slow):
    pass

def test_socket():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()

def test_quick():
    pass
"""


def test_hanging_tests_are_ended_within_their_limit(tmp_path: Path) -> None:
    """In one run: each is ended for itself, and the next one begins."""
    (tmp_path / "test_here.py").write_text(HANGING)
    words = ["-q", "-p", "tests.helpers.hanging", "-p", "no:cacheprovider", "-o", "markers=limit(seconds): limit"]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--rootdir={tmp_path}", "-c", "/dev/null", tmp_path / "test_here.py"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert time.monotonic() - begun < 60
    assert done.returncode == 1, done.stdout + done.stderr
    assert "4 failed, 1 passed, 1 error in " in done.stdout
    sections = re.split(r"^_+ (?:ERROR at setup of )?(test_\w+) _+$", done.stdout, flags=re.MULTILINE)
    reports = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert sorted(reports) == ["test_catching", "test_setup", "test_socket", "test_subprocess", "test_thread"]
    for name, report in reports.items():
        assert "hangs: not done within 1 s" in report, name
        assert ("runs: sleep 1234" in report) == (name == "test_subprocess"), name


def test_limit_of_each_kind_is_that_of_its_mark_or_folder(request: pytest.FixtureRequest) -> None:
    assert hanging.limit(request.node) == 300
    request.node.add_marker("slow")
    assert hanging.limit(request.node) == 7200
