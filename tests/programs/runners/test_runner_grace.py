"""What a runner's pod does with the end of its container: its hook, then TERM, as the kubelet does it.

``SLIPWAY_RUNNER=checkout/src/Misc/layoutroot`` plays it with GitHub's own ``run.sh`` instead of the stand-in, which has its
lines of the contract (``maintenance/upstream/contracts/actions-runner.toml``).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from components.runners.kubernetes import pod
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.helpers.needs import needs

_RUN = """\
#!/bin/bash
DIR="$( cd -P "$( dirname "${BASH_SOURCE[0]}" )" && pwd )"
set -m
trap 'kill -INT -$PID' INT TERM
while :; do
  cp -f "$DIR"/run-helper.sh.template "$DIR"/run-helper.sh
  "$DIR"/run-helper.sh $* &
  PID=$!
  wait $PID
  returnCode=$?
  trap - INT TERM
  wait $PID
  exit $returnCode
done
"""
_HELPER = '#!/bin/bash\n"$(dirname "$0")"/bin/Runner.Listener run $*\n'
_LISTENER = """\
#!/usr/bin/env python3
# As JobDispatcher.cs: a job has a process of its own, and an interrupt cancels it.
import os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(__file__).parent
def interrupted(*_):
    (here / "result").write_text("cancelled" if worker else "idle")
    if worker:
        worker.kill()
    os._exit(0)
worker = None
signal.signal(signal.SIGINT, interrupted)
(here / "up").touch()
seconds = os.environ["JOB_SECONDS"]
if seconds == "idle":
    time.sleep(600)
worker = subprocess.Popen([here / "Runner.Worker", seconds], start_new_session=True)
worker.wait()
(here / "result").write_text("succeeded")
"""
_WORKER = "#!/bin/bash\nexec -a Runner.Worker sleep $1\n"


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    needs("mounts")
    if real := os.environ.get("SLIPWAY_RUNNER"):
        shutil.copytree(real, tmp_path, dirs_exist_ok=True)
    else:
        executable(tmp_path / "run.sh", _RUN)
        executable(tmp_path / "run-helper.sh.template", _HELPER)
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/Runner.Listener", _LISTENER)
    executable(tmp_path / "bin/Runner.Worker", _WORKER)
    return tmp_path


APART = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c"]
"""A namespace of processes, as a container has it: hook and probe look at every process of their own."""


def container() -> dict[str, Any]:
    """Return a runner's container."""
    config = KubernetesRunnersConfig.model_validate(
        {"kind": "kubernetes", "github": {"url": "https://github.com/acme", "secret": "github"}, "grace": 1}
    )
    template: dict[str, Any] = pod.template(config, "runner", "docker")["spec"]["containers"][0]
    return template


def stopped(layout: Path, job: str, grace: str) -> tuple[str, float]:
    """Run a runner in processes of its own, stop it as the kubelet does, and return its job's end and the seconds."""
    hook = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[-1] == "60"
    env = {entry["name"]: entry["value"] for entry in container()["env"] if "DOCKER" not in entry["name"]}
    play = 'SECONDS=0; "$1/run.sh" & run=$!; until [ -e "$1/bin/up" ]; do sleep 0.1; done; sleep "$2"; shift 2;\n'
    play += '"$@"; kill -TERM "$run"; wait "$run"'
    settled = "0" if job == "idle" else "1"
    begun = time.monotonic()
    process = subprocess.Popen(
        [*APART, play, "play", str(layout), settled, *hook[:-1], grace],
        env={**os.environ, **env, "JOB_SECONDS": job, "RUNNER_ALLOW_RUNASROOT": "1"},
        start_new_session=True,
    )
    try:
        process.wait(40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    result = layout / "bin/result"
    return result.read_text() if result.exists() else "lost", time.monotonic() - begun


def test_runner_is_ready_while_it_has_a_job(layout: Path) -> None:
    """Else its pod may be evicted."""
    play = 'probe=("$@"); for job in "" x; do "${probe[@]}"; echo $?; "$0"/bin/Runner.W* 9 & sleep 0.5; done'
    done = subprocess.run(
        [*APART, play, str(layout), *container()["readinessProbe"]["exec"]["command"]],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["1", "0"], done


def test_stopped_runner_finishes_its_job(layout: Path) -> None:
    assert stopped(layout, "6", "60")[0] == "succeeded"


def test_stopped_runner_without_a_job_ends_at_once(layout: Path) -> None:
    result, seconds = stopped(layout, "idle", "60")
    assert result == "idle"
    assert seconds < 15


def test_stopped_runner_cancels_its_job_after_grace(layout: Path) -> None:
    result, seconds = stopped(layout, "300", "3")
    assert result == "cancelled"
    assert seconds < 25
