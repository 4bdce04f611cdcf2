"""The flavors ``base`` and ``nccl``: their graph, their arguments, and the one line for each mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every


@every(
    "requested, installed, fragment",
    [
        ("2.0.0-rc1", "2.0.0rc1", ""),
        ("2.0.0-rc1", "2.0.0rc1+cu118", ""),
        ("2.0.0-rc1", "2.0.0rc2", "torch: asked for 2.0.0rc1 (TORCH_VERSION), but 2.0.0rc2 is installed\n"),
        ("2.0.1", "2.0.1+cu118", ""),
        ("", "2.0.1", "torch: asked for none (TORCH_VERSION), but 2.0.1 is installed\n"),
    ],
)
def test_torch_wheel_version_is_checked_by_its_own_name(
    tmp_path: Path, requested: str, installed: str, fragment: str
) -> None:
    (tmp_path / "torch.dist-info").mkdir()
    (tmp_path / "torch.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {installed}\n")
    done = subprocess.run(
        [sys.executable, ROOT / CONTEXT / "torch/checks/build/20-versions.py"],
        env={
            "PYTHONPATH": str(tmp_path),
            "TORCH_VERSION": requested,
            "TORCH_VISION_VERSION": "",
            "TORCH_AUDIO_VERSION": "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == (fragment, int(bool(fragment)))
