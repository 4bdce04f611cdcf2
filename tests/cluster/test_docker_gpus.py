"""Docker with GPUs (``dockerGpus``) on a real engine: what its container describes after its start, another one has."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from components.runners.kubernetes import job_pods
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.helpers.empty_engine import started
from toolchain.checkout import Checkout
from toolchain.parts import docker_engine

pytestmark = pytest.mark.slow

CONFIG = KubernetesRunnersConfig.model_validate(
    {
        "kind": "kubernetes",
        "github": {"url": "https://github.com/acme", "secret": "github"},
        "profile": "eks-p5",
        "jobPods": True,
        "daemon": True,
        "dockerGpus": True,
        "dockerImage": "r.example/docker:1",
    }
)
TOOL = """#!/bin/sh
[ "$1 $2" = "cdi generate" ] || exit 1
cat > "${3#--output=}" <<'SPEC'
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/null}]}
containerEdits:
  env: [NVIDIA_CTK=yes]
  mounts: [{hostPath: LIBRARY, containerPath: /opt/libcuda.so.1, options: [ro, bind]}]
SPEC
"""
"""In place of NVIDIA's nvidia-ctk, which wants a driver."""
OWN_RUN = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh")
"""As in a pod: a /var/run of its own."""
SEEN = 'echo "$NVIDIA_CTK"; [ -c /dev/nvidia0 ] && echo device; [ -s /opt/libcuda.so.1 ] && echo library; :'


def shell() -> bytes:
    """Return a root file system of the machine's shell."""
    linked = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(/\S+) \(", linked)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for path in ("/bin/sh", *libraries):
            tar.add(path, path[1:])
    return buffer.getvalue()


def test_container_has_the_gpus_that_docker_describes(tmp_path: Path) -> None:
    (tmp_path / "daemon.json").write_text('{"features": {"cdi": true}}')  # the default from Docker 28.2 on
    (tmp_path / "library").write_text("of the driver")
    tool = tmp_path / "nvidia-ctk"
    tool.write_text(TOOL.replace("LIBRARY", str(tmp_path / "library")))
    tool.chmod(0o755)
    docker = job_pods.template(CONFIG)["spec"]["containers"][1]
    with started(under=OWN_RUN, options=[f"--config-file={tmp_path / 'daemon.json'}"]) as host:
        environment = {**os.environ, "DOCKER_HOST": host, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

        def run(*words: str, given: bytes | None = None) -> str:
            done = subprocess.run(words, input=given, env=environment, capture_output=True, check=False, timeout=120)
            return done.stdout.decode() + done.stderr.decode()

        def seen(*options: str) -> str:
            return run("docker", "run", "--rm", "--network=none", *options, "shell", "/bin/sh", "-c", SEEN)

        run("docker", "import", "-", "shell", given=shell())
        assert "unresolvable CDI devices nvidia.com/gpu=all" in seen("--device=nvidia.com/gpu=all")
        checkout = Checkout(Path(host.removeprefix("unix://")).parents[2])
        pid = docker_engine.daemon(checkout).pid()
        after = docker["lifecycle"]["postStart"]["exec"]["command"]
        assert run("nsenter", f"--target={pid}", "--mount", *after) == ""
        assert seen("--device=nvidia.com/gpu=all").split() == ["yes", "device", "library"]
        assert seen().split() == []
