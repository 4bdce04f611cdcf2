"""The script that takes a folder out of a wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT

SCRIPT = ROOT / CONTEXT / "torch-extras/wheels/without"
PLACE = "flash_attn-2.8.3.dist-info"


def test_wheel_without_folder_keeps_all_other_files(tmp_path: Path) -> None:
    kept = {"flash_attn/__init__.py": "two", "flash_attn/cute.py": "", "flash_attn_2_cuda.so": "\x7fELF"}
    copy = {"flash_attn/cute/__init__.py": "four", "flash_attn/cute/inner/mask.py": ""}
    record = "".join(f"{path},sha256=x,1\n" for path in [*kept, *copy, f"{PLACE}/RECORD"])
    wheel = tmp_path / "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as written:
        for path, content in {**kept, **copy, f"{PLACE}/RECORD": record}.items():
            written.writestr(path, content)
    subprocess.run([sys.executable, str(SCRIPT), "flash_attn/cute", str(wheel)], check=True)
    assert list(tmp_path.iterdir()) == [wheel]
    with zipfile.ZipFile(wheel) as read:
        assert read.testzip() is None
        assert read.namelist() == [*kept, f"{PLACE}/RECORD"]
        assert read.read("flash_attn/__init__.py") == b"two"
        listed = [line.partition(",")[0] for line in read.read(f"{PLACE}/RECORD").decode().splitlines()]
    assert listed == [*kept, f"{PLACE}/RECORD"]
