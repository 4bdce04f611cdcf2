"""The key of anybody's Dockerfile: edits within the reach change it, edits outside of it do not."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from tests.unit.containers import test_build_key as keys
from tests.unit.containers.test_build_key import key

folder = keys.folder


def test_key_needs_standard_library_alone(folder: Path) -> None:
    """A workflow asks for it before anything is installed; and it takes less than 0.3 s of a processor."""
    program = (
        "import sys; from pathlib import Path; from containers.dockerfile.build_key import build_key; "
        "print(build_key(Path('Dockerfile'), Path(), 'app', {}, 'linux/amd64').key)"
    )
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.strip() == key(folder)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
