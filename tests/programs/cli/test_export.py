"""Images and wheels that are exported from a registry on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stacks import plan
from stacks.config.stack_file import ROOT
from tests.fakes.registry import Registry
from tests.helpers.every import every
from tests.unit.cli import test_export as exports
from tests.unit.cli.test_export import export, names

reference = exports.reference
registry = exports.registry


def test_export_to_full_disk_is_one_line_and_no_file(registry: Registry, tmp_path: Path) -> None:
    registry.image("acme/big:1", [os.urandom(1 << 20)])
    output = tmp_path / "app.tar"
    # A limit on file size stands in for a full disk: the same call fails.
    limited = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)); from cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["export", f"{registry.address}/acme/big:1", "--format", "tar", "--output", str(output)]
    done = subprocess.run(
        [sys.executable, "-c", limited, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"{output}: no space left on its disk; nothing was kept\n"
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_export_interrupted_leaves_no_file(registry: Registry, reference: str, tmp_path: Path, number: int) -> None:
    (tmp_path / "app.tar").write_text("precious")
    words = ["export", reference, "--format", "tar", "--output", str(tmp_path / "app.tar"), "--force"]
    registry.slow.set()
    with subprocess.Popen(
        [sys.executable, "-m", "stacks", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as running:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".app.tar.*.partial/new")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.send_signal(number)
        error = running.communicate(timeout=60)[1]
    registry.slow.clear()
    assert running.returncode == 130
    assert error.strip() == "interrupted"
    assert names(tmp_path) == ["app.tar"]
    assert (tmp_path / "app.tar").read_text() == "precious"


DOCKER = """\
import json, sys
from pathlib import Path
assert sys.argv[1:] == ["buildx", "bake", "--push"]
[file] = [name for name in ("docker-bake.json", "docker-bake.override.json") if Path(name).exists()]
targets = json.loads(Path(file).read_text())["target"]
for name, target in targets.items():
    assert (Path(target["context"]) / target["dockerfile"]).is_file(), name
    for named in target["contexts"].values():
        assert named.removeprefix("target:") in targets, named
print(len(targets))
"""
"""What ``docker buildx bake`` opens, and from which folder (docker/buildx 461836ba, bake/bake.go: the lookup of the default
files, and ``toBuildOpt``): contexts from the working directory, a Dockerfile from its context."""


@every("stack", ["local", "base-cu132"])
def test_export_bake_prints_a_line_that_finds_all_contexts(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export("bake", stack, "--output", "a folder") == 0
    line = capsys.readouterr().out
    (tmp_path / "docker").write_text(f"#!{sys.executable} -IS\n{DOCKER}")
    (tmp_path / "docker").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-euc", line], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= len(plan.make(stack, search=False).images)
