"""`renovate.json`: its rule reads every line that `slipway lock` writes, and would write the like."""

from __future__ import annotations

import json
import re
from pathlib import Path

from stacks import lock
from stacks.config.stack_file import ROOT

OLD, NEW = (f"sha256:{digit * 64}" for digit in "ab")
NAMES = ["docker.io/nvidia/cuda:12.1.1-base-ubuntu20.04", "127.0.0.1:5000/acme/x:1", "nvcr.io/nvidia/pytorch:26.03-py3"]
RENOVATE = json.loads((ROOT / "renovate.json").read_text())
(MANAGER,) = RENOVATE["customManagers"]


def test_renovate_replaces_digests_as_lock_does(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    lock.write(tmp_path, dict.fromkeys(NAMES, OLD), "2026-11-21")
    text = lock.path(tmp_path).read_text()
    (pattern,) = MANAGER["matchStrings"]
    matches = list(re.finditer(re.sub(r"\(\?<", "(?P<", pattern), text))
    assert sorted(f"{match['depName']}:{match['currentValue']}" for match in matches) == sorted(NAMES)
    for match in matches:
        replaced = MANAGER["autoReplaceStringTemplate"]
        for key, value in {**match.groupdict(), "newDigest": NEW}.items():
            replaced = replaced.replace("{{{" + key + "}}}", value)
        text = text.replace(match[0], replaced)
    lock.write(tmp_path, dict.fromkeys(NAMES, NEW), "2026-11-21")
    assert text == lock.path(tmp_path).read_text()


def test_renovate_reads_the_lock_file() -> None:
    (pattern,) = MANAGER["managerFilePatterns"]
    path = lock.path(ROOT).relative_to(ROOT)
    assert re.fullmatch(pattern.strip("/"), str(path))
    assert all(rule["matchFileNames"] == [str(path)] for rule in RENOVATE["packageRules"])
