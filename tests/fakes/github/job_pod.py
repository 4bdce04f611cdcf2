"""A stand-in of a job's pod, as GitHub's hook for Kubernetes makes it: a container of the image, as the image's user.

Source: actions/runner-container-hooks v0.8.1, packages/k8s/src. The container runs ``tail -f /dev/null``
(k8s/utils.ts:10-11). ``/__w`` is an empty volume that all may write to. The folder of the checkout is made in it by
user 1001 (k8s/index.ts:105-126), and the folder of temporary files by the image's user, as it is unpacked
(hooks/prepare-job.ts:118). A step is run by ``sh -e`` (hooks/run-script-step.ts:75-82).
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.images.engine import docker

_VOLUME = "mkdir -m 0777 /__w && mkdir -p /__w/slipway/slipway && chown -R 1001:1001 /__w/slipway"


class JobPod:
    """A pod, in which ``temp`` of the runner is ``/__w/_temp``."""

    def __init__(self, image: str, temp: Path, *, warming: bool = False) -> None:
        self.name = f"slipway-job-pod-{uuid.uuid4().hex[:8]}"
        self._temp = str(temp)
        docker("run", "--detach", "--name", self.name, "--entrypoint", "tail", image, "-f", "/dev/null")
        docker("exec", "--user", "0:0", self.name, "sh", "-c", _VOLUME)
        docker("exec", self.name, "mkdir", "/__w/_temp")
        if warming:  # the empty volume of a stack's runners (components/runners/kubernetes/job_pods.py)
            docker("exec", "--user", "0:0", self.name, "mkdir", "-p", "-m", "0777", "/opt/slipway/warm")

    def _inside(self, text: str) -> str:
        return "/__w/_temp" + text.removeprefix(self._temp) if text.startswith(self._temp) else text

    def line(self, line: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a line of a step."""
        options = [word for key, text in variables.items() for word in ("--env", f"{key}={self._inside(text)}")]
        words = ["exec", "--workdir", "/__w/slipway/slipway", *options, self.name, "sh", "-e", "-c", line]
        return docker(*words, check=False)

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file or folder out of the pod."""
        docker("cp", f"{self.name}:{self._inside(path)}", target)

    def end(self) -> None:
        """Remove the pod."""
        docker("rm", "--force", self.name)
