"""A real Kubernetes control plane on loopback: etcd, the API server with RBAC, the controllers and the scheduler."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.programs import program
from tests.helpers.free_port import free_port
from toolchain.checkout import Checkout
from toolchain.machine import apt

TOKEN: Final = "admin-token"
START_SECONDS: Final = 120.0


def etcd() -> Path:
    """Return Debian's etcd, unpacked once into the checkout's cache."""
    target = Checkout.here().cache / "cluster" / "etcd"
    if not target.exists():
        apt.unpack(Checkout.here(), "etcd-server", "usr/bin/etcd", target)
    return target


@dataclass
class Cluster:
    """A cluster's API, asked as its administrator; whatever is started for it ends with it."""

    folder: Path
    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    session: requests.Session = field(default_factory=requests.Session)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def run(self, name: str, *command: str | Path, **environment: str) -> None:
        """Start a program of the cluster, with a log of its own."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env=environment or None)
            )

    def log(self, name: str) -> str:
        """Return the end of a program's log."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """Call the API; anything but success fails the test."""
        response = self.session.request(method, f"{self.server}{path}", json=body, timeout=60, **options)
        assert response.ok, response.text
        content: dict[str, Any] = response.json()
        return content

    def get(self, path: str) -> dict[str, Any]:
        """Return what is at a path."""
        return self.call("GET", path)

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return a list's items."""
        items: list[dict[str, Any]] = self.get(path)["items"]
        return items

    def can(self, user: str, verb: str, resource: str, *, namespace: str = "", group: str = "") -> bool:
        """Ask the API server whether a user may do something: ``kubectl auth can-i --as``."""
        name, _, sub = resource.partition("/")
        attributes = {"verb": verb, "resource": name, "subresource": sub, "namespace": namespace, "group": group}
        groups = ["system:authenticated"]
        if user.startswith("system:serviceaccount:"):
            groups += ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        response = self.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        allowed: bool = response["status"]["allowed"]
        return allowed


def until(condition: Any, seconds: float = START_SECONDS, description: str = "") -> Any:
    """Return the first true result of ``condition``, which is called five times a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, AssertionError):  # a server that is not there yet
            if result := condition():
                return result
        time.sleep(0.2)
    raise AssertionError(f"not true within {seconds} s: {description or condition}")


def _keys(folder: Path) -> Path:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = folder / "accounts.key"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return path


def _kubeconfig(cluster: Cluster) -> dict[str, Any]:
    certificate = str(cluster.folder / "certificates/apiserver.crt")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {"server": cluster.server, "certificate-authority": certificate}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
    }


@contextmanager
def control_plane(folder: Path, advertised: str = "127.0.0.1") -> Iterator[Cluster]:
    """Run a control plane until the block ends; there is no node in it.

    ``advertised`` is an address for which its certificate is, too: pods may reach it there by a relay.
    """
    cluster = Cluster(folder, free_port())
    client, peer = free_port(), free_port()
    certificates, accounts = folder / "certificates", _keys(folder)
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    cluster.kubeconfig.write_text(json.dumps(_kubeconfig(cluster)))
    address = f"http://127.0.0.1:{client}"
    try:
        cluster.run(
            "etcd",
            etcd(),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={address}",
            f"--advertise-client-urls={address}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        cluster.run(
            "apiserver",
            program("kube-apiserver"),
            f"--etcd-servers={address}",
            "--bind-address=127.0.0.1",
            f"--advertise-address={advertised}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--secure-port={cluster.port}",
            f"--cert-dir={certificates}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.test",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
        )
        cluster.session.trust_env = False  # a machine's own bundle of certificates would take the place of this one's
        cluster.session.headers["Authorization"] = f"Bearer {TOKEN}"
        cluster.session.verify = str(certificates / "apiserver.crt")
        until(
            lambda: (certificates / "apiserver.crt").exists() and cluster.session.get(f"{cluster.server}/readyz").ok,
            description="the API server is ready",
        )
        common = [f"--kubeconfig={cluster.kubeconfig}", "--bind-address=127.0.0.1", "--leader-elect=false"]
        cluster.run(
            "controllers",
            program("kube-controller-manager"),
            *common,
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'controllers'}",
            f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={certificates / 'apiserver.crt'}",
            "--enable-hostpath-provisioner=true",
        )
        cluster.run(
            "scheduler",
            program("kube-scheduler"),
            *common,
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'scheduler'}",
        )
        until(lambda: cluster.items("/api/v1/namespaces/default/serviceaccounts"), description="the controllers work")
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            process.terminate()
        for process in reversed(cluster.processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
