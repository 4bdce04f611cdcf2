"""Completion in a shell: commands, options, stacks, images, keys and flavors, without loading the models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT, stack_names
from tests.helpers.every import every


def complete(line: str, *, code: str = "from cli.main import run; run()") -> list[str]:
    """Return what bash is given for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_SLIPWAY_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **words}, capture_output=True, text=True, check=True
    )
    return [item.partition(",")[2] for item in done.stdout.splitlines() if item]


@every(
    "line, words",
    [
        ("slipway s", ["show", "start", "scan"]),
        ("slipway show nccl-cu1", [name for name in stack_names() if name.startswith("nccl-cu1")]),
        ("slipway verify nccl-cu121 torch", ["torch", "torch-extras"]),
        ("slipway export nccl-cu121 nc", ["nccl-tests"]),
        ("slipway export local --format ", ["tar", "oci", "sqsh"]),
        ("slipway explain tor", ["torch"]),
        ("slipway explain cuda --stack lo", ["local", "local-multi"]),
        ("slipway new mine --flavor r", ["runners"]),
        ("slipway compose no-such-stack ", []),
    ],
)
def test_completion_offers_what_fits(line: str, words: list[str]) -> None:
    assert complete(line) == words


def test_completion_of_stacks_loads_no_models() -> None:
    code = (
        "import atexit, sys; from cli.main import run; "
        "atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr)); run()"
    )
    line = {"COMP_WORDS": "slipway show lo", "COMP_CWORD": "2", "_SLIPWAY_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **line}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,local\nplain,local-multi\n"
    assert not {"pydantic", "stacks.plan", "requests"} & set(done.stderr.splitlines())


def test_completion_script_completes_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "slipway"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c "from cli.main import run; run()" "$@"\n'
    )
    program.chmod(0o755)
    script = (
        'eval "$(slipway completion bash)"; COMP_WORDS=(slipway show loc); COMP_CWORD=2; '
        '_slipway_completion slipway loc show; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "local local-multi\n"
