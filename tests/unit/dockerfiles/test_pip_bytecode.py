"""The bytecode that steps of a build run pip with: of pip, and for its source alone."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT

SCRIPT = ROOT / "dockerfiles/common/layers/pip-bytecode"


def source_of(prefix: Path, compiled: Path) -> Path:
    """Return the module that a file of bytecode is of."""
    return Path("/", compiled.relative_to(prefix)).with_name(f"{compiled.name.partition('.')[0]}.py")


def test_pip_starts_from_bytecode_of_its_source_alone(tmp_path: Path) -> None:
    """Flags and hash as PEP 552 has them: 3 is a hash that Python checks. One test, as compiling pip takes seconds."""
    prefix = tmp_path / "prefix"
    subprocess.run([sys.executable, SCRIPT, prefix], check=True)
    bytecode = sorted(prefix.rglob("*.pyc"))
    for compiled in bytecode:
        source = source_of(prefix, compiled).read_bytes()
        assert compiled.read_bytes()[4:16] == b"\3\0\0\0" + importlib.util.source_hash(source), compiled
    names = {str(source_of(prefix, compiled)) for compiled in bytecode}
    for module in ("pip/_internal/operations/install/wheel", "email/parser"):
        assert [name for name in names if name.endswith(f"/{module}.py")], module
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(prefix), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-v", "-m", "pip", "install", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    loaded = re.findall(r"# code object from '(\S+)'", done.stderr)
    assert loaded
    assert not [path for path in loaded if not path.startswith(f"{prefix}/")]
