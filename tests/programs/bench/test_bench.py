"""The benchmark's arithmetic: medians, ratios, targets, the table. No times are asserted anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench import program, synthetic_images
from bench.measure import processor_seconds, resident, run


def test_run_watched_measures_memory_of_descendants(tmp_path: Path) -> None:
    megabytes = 64
    child = f"import time; held = bytearray({megabytes} << 20); time.sleep(0.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    assert run([sys.executable, "-c", parent], cwd=tmp_path, env=os.environ, watch=True).peak > megabytes << 20
    assert run([sys.executable, "-c", "pass"], cwd=tmp_path, env=os.environ).peak == 0
    assert resident(os.getpid()) > 0


BUSY = "import time\nwhile time.process_time() < 0.3: pass"
"""A program that takes 0.3 s of CPU time."""


def test_run_measures_cpu_time_of_descendants(tmp_path: Path) -> None:
    waiting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)"
    measured = run([sys.executable, "-c", waiting], cwd=tmp_path, env=os.environ)
    assert measured.cpu > 0.2
    assert measured.peak == 0
    assert run(["sleep", "0.3"], cwd=tmp_path, env=os.environ).cpu < measured.cpu


def test_processor_seconds_count_ended_descendants() -> None:
    before = processor_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert processor_seconds(os.getpid()) - before > 0.2  # ticks of the clock are lost


def test_program_of_slipway_lists_its_stack(tmp_path: Path) -> None:
    copy = program.slipway(tmp_path / "slipway", "127.0.0.1:5000/bench", {"flavor": "many", "count": 2})
    synthetic_images.write(copy.dockerfiles, 2)
    copy.commit()
    run([sys.executable, "-m", "stacks", "check"], cwd=copy.folder, env=os.environ)
