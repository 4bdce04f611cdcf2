"""A project whose cluster is a folder: the Kubernetes plugin's stand-in keeps each object there as a file."""

from __future__ import annotations

import json
import shlex
import ssl
import sys
from pathlib import Path

from tests.engine.project import Project
from tests.fakes.tls_relays import server_context
from tests.provider.plugin import CHECKOUT

KUBECTL = """#!/bin/sh
echo '{"items": []}'
"""


def on_folder(root: Path) -> tuple[Project, Path]:
    """Return a project whose cluster is a folder, and the folder."""
    project = _prepared(Project(root / "project"))
    cluster = root / "cluster"
    cluster.mkdir()
    command = shlex.join([sys.executable, "-P", "-m", "tests.fakes.plugin", "tests.fakes.kubernetes.folder_plugin"])
    plugin = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(CHECKOUT))} exec {command} "$@"\n'
    _programs(project, **{"kubectl": KUBECTL, "pulumi-resource-kubernetes": plugin})
    project.environment |= {"CLUSTER_FOLDER": str(cluster), "KUBECONFIG": str(root / "kubeconfig")}
    return project, cluster


def service_context(cluster: Path, name: str = "build") -> ssl.SSLContext:
    """Return the TLS of the service, or of a replica, by the certificate that the cluster has now.

    Raises:
        OSError: it has none.
    """
    secret = next(cluster.glob(f"Secret-*-build-{name}-server.json"), None)
    if secret is None:
        raise OSError("no certificate")
    pem = json.loads(secret.read_text())["stringData"]
    return server_context(pem["ca.pem"], pem["cert.pem"], pem["key.pem"])


def _programs(project: Project, **scripts: str) -> None:
    """Put programs on the project's PATH; the venv's bin stays first, where the language host finds its Python."""
    folder = project.root.with_name("programs")
    folder.mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    project.environment["PATH"] = f"{Path(sys.executable).parent}:{folder}:{project.environment['PATH']}"


def _prepared(project: Project) -> Project:
    """Initialise a project's stack; its files are the same on every machine, and so are its tags."""
    for number in range(3):
        project.write(f"dockerfiles/link{number}/file.txt", f"content {number}\n")
    project.pulumi("stack", "init", "t")
    return project
