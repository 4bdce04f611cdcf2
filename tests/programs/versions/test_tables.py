"""The tables beside CUDA and torch: NCCL, MAGMA, extras, EFA, NGC; and how they all load."""

from __future__ import annotations

import subprocess
import sys


def test_import_of_versions_reads_no_table() -> None:
    probe = (
        "import importlib, pkgutil, sys, stacks.versions; from stacks.versions.tables import table;"
        "[importlib.import_module(f'stacks.versions.{m.name}') for m in pkgutil.iter_modules(stacks.versions.__path__)];"
        "print(table.cache_info().currsize, 'pulumi' in sys.modules, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "False", "False"]
