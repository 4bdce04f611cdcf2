"""A test that hangs is ended and says what it waits for, whatever it does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.helpers import hanging

HANGING = {
    "subprocess": "import subprocess\n@pytest.mark.limit(2)\ndef test():\n    subprocess.run(['sleep', '1234'])\n",
    "thread": """\
import threading
@pytest.mark.limit(2)
def test():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
""",
    "catching": """\
import time
@pytest.mark.limit(2)
def test():
    try:
        time.sleep(1234)
    except Exception:
        pass
""",
    "setup": """\
import time
@pytest.fixture
def slow():
    time.sleep(1234)
@pytest.mark.limit(2)
def test(slow):
    pass
""",
    "socket": """\
import socket
@pytest.mark.limit(2)
def test():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()
""",
}


@pytest.mark.parametrize("kind", HANGING)
def test_hanging_test_is_ended_within_its_limit(kind: str, tmp_path: Path) -> None:
    (tmp_path / "test_here.py").write_text(f"import pytest\n{HANGING[kind]}")
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
    assert "hangs: not done within 2 s" in done.stdout
    assert ("runs: sleep 1234" in done.stdout) == (kind == "subprocess")


def test_limit_of_each_kind_is_that_of_its_mark_or_folder(request: pytest.FixtureRequest) -> None:
    assert hanging.limit(request.node) == 300
    request.node.add_marker("slow")
    assert hanging.limit(request.node) == 7200
