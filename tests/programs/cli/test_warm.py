"""Warm layers: which machine a cache fits, what an archive of caches may hold, and equal bytes of equal files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.startup import docker_client
from cli.warm import warm_container, warm_hook, warm_layer, warm_run
from tests.helpers.every import every


def test_module_has_the_bytecode_of_the_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program that describes the machine says it; this Python, in place of the image's, reads it as it is."""
    words = [sys.executable, "-c", warm_run.PROGRAM, warm_run.HOOK]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(docker_client, "docker", lambda *_: (0, printed))
    described = warm_run.probe("r.example/a", gpu=False)
    monkeypatch.setattr(warm_layer, "inspect", SimpleNamespace(getsource=lambda _: "not read"))
    target = io.BytesIO()
    owner = replace(described.owner, modules="/modules")
    warm_layer.write([], io.BytesIO(), target, "key", described.lines, owner)
    target.seek(0)
    with tarfile.open(fileobj=target) as written:
        written.extractall(tmp_path)
    imported = "import slipway_warm; print(slipway_warm.__cached__, slipway_warm.ROOT)"
    found = subprocess.run(
        [sys.executable, "-c", imported], capture_output=True, text=True, check=True, cwd=tmp_path / "modules"
    ).stdout
    assert found.split() == [
        str(tmp_path / f"modules/__pycache__/slipway_warm.{owner.bytecode[0]}.pyc"),
        warm_hook.ROOT,
    ]


@every(
    "room, reason",
    [
        ({"f_bavail": 9, "f_files": 0, "f_favail": 0}, None),
        ({"f_bavail": 0, "f_files": 0, "f_favail": 0}, "no room left on the disk of "),
        ({"f_bavail": 9, "f_files": 9, "f_favail": 0}, "no room left on the disk of "),
    ],
)
def test_disk_of_a_pod_is_full_where_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, room: dict[str, int], reason: str | None
) -> None:
    """A file system that counts no files, such as btrfs, says that it has none."""
    asked = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**room) if path == str(tmp_path) else asked(path))
    with pytest.raises(SystemExit, match=reason) if reason else nullcontext():
        warm_container.run(vars(warm_hook), tmp_path, "steps.py", b"", io.BytesIO(), 60)
