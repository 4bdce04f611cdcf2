"""A real node on this machine: Debian's containerd with a network of its own, and a kubelet. It takes root."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker

from tests.cluster.control_plane import Cluster, until
from tests.cluster.programs import program
from tests.fakes.kubernetes.node_pools import POOL
from tests.helpers.free_port import free_port
from toolchain.checkout import Checkout
from toolchain.machine import apt

NODE: Final = "slipway-test"
BRIDGE: Final = "slipway-pods"
NETWORK: Final = ipaddress.ip_network("10.213.77.0/24")
GATEWAY: Final = str(NETWORK[1])
"""The machine, as its pods reach it."""

IMAGE: Final = "slipway.test/docker:1"
"""The one image of the tests: a Docker daemon and its client; without arguments it sleeps."""

DOCKERFILE: Final = """ARG BASE
FROM ${BASE}
RUN apt-get update -q && apt-get install -q -y --no-install-recommends docker.io iptables && rm -rf /var/lib/apt/lists/*
RUN mkdir -p /etc/docker && echo '{"insecure-registries": ["10.213.77.0/24"]}' > /etc/docker/daemon.json
CMD ["sleep", "infinity"]
"""

ROOTLESS: Final = """ARG BASE
FROM ${BASE}
RUN apt-get update -q && \\
    apt-get install -q -y --no-install-recommends ca-certificates libcap2-bin rootlesskit runc uidmap && \\
    rm -rf /var/lib/apt/lists/*
# As root of a container without CAP_SYS_ADMIN they may not write the maps of another's namespace; its owner may.
RUN chmod u-s /usr/bin/newuidmap /usr/bin/newgidmap && \\
    setcap cap_setuid=ep /usr/bin/newuidmap && setcap cap_setgid=ep /usr/bin/newgidmap
RUN useradd --uid 1000 --create-home user && echo user:100000:65536 | tee /etc/subuid > /etc/subgid && \\
    install -d -o 1000 -g 1000 /run/user/1000 /home/user/.local /home/user/.local/tmp /home/user/.local/share
COPY buildkitd buildctl /usr/bin/
USER 1000:1000
ENV HOME=/home/user USER=user XDG_RUNTIME_DIR=/run/user/1000 TMPDIR=/home/user/.local/tmp \\
    BUILDKIT_HOST=unix:///run/user/1000/buildkit/buildkitd.sock
ENTRYPOINT ["rootlesskit", "buildkitd"]
"""
"""In place of BuildKit's rootless image: the same BuildKit, and what it stands on from Debian."""

_CONTAINERD: Final = """version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
"""


@dataclass(frozen=True)
class Machine:
    """What the node runs on: its folder, and containerd's socket in it."""

    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    def ctr(self, *words: str | Path) -> str:
        """Run containerd's client."""
        command = ["ctr", "--address", self.socket, "--namespace", "k8s.io", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def load(self, image: str) -> None:
        """Give the node an image that the machine's Docker engine has."""
        archive = self.folder / "image.tar"
        with archive.open("wb") as written:
            written.writelines(engine().images.get(image).save(named=True))
        self.ctr("images", "import", archive)
        archive.unlink()


def engine() -> docker.DockerClient:
    """Return the machine's Docker engine."""
    return docker.from_env(timeout=600)


def build(base: str) -> str:
    """Have :data:`IMAGE` in the machine's Docker engine; return its name."""
    engine().images.build(fileobj=io.BytesIO(DOCKERFILE.encode()), tag=IMAGE, buildargs={"BASE": base}, rm=True)
    return IMAGE


def build_rootless(base: str, name: str) -> None:
    """Have :data:`ROOTLESS` in the machine's Docker engine by a name."""
    with tempfile.TemporaryDirectory() as context:
        for each in ("buildkitd", "buildctl"):
            shutil.copy(program(each), context)
        Path(context, "Dockerfile").write_text(ROOTLESS)
        engine().images.build(path=context, tag=name, buildargs={"BASE": base}, rm=True)


def _plugins() -> Path:
    """Return the folder of Debian's network plugins, unpacked once into the checkout's cache."""
    folder = Checkout.here().cache / "cluster" / "cni"
    for name in ("bridge", "host-local", "loopback"):
        if not (folder / name).exists():
            apt.unpack(Checkout.here(), "containernetworking-plugins", f"usr/lib/cni/{name}", folder / name)
    return folder


def _remove_bridge() -> None:
    subprocess.run(["ip", "link", "delete", BRIDGE], check=False, stderr=subprocess.DEVNULL)


def _network(folder: Path) -> None:
    """Write the network of the pods, and make its bridge, so that the machine has its address before any pod."""
    (folder / "cni").mkdir()
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(NETWORK)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(folder / "addresses"),
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": True, "ipam": ipam}
    plugins = {"cniVersion": "0.4.0", "name": BRIDGE, "plugins": [bridge]}
    (folder / "cni/10-pods.conflist").write_text(json.dumps(plugins))
    _remove_bridge()  # of tests that were killed
    subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
    subprocess.run(["ip", "addr", "add", f"{GATEWAY}/{NETWORK.prefixlen}", "dev", BRIDGE], check=True)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)


def _kubelet(folder: Path, socket: Path) -> Path:
    config = folder / "kubelet.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": GATEWAY,  # where the API server looks for it
                "port": free_port(),
                "readOnlyPort": 0,
                "healthzPort": 0,
                "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                "authorization": {"mode": "AlwaysAllow"},
                "cgroupDriver": "cgroupfs",
                "failCgroupV1": False,
                "failSwapOn": False,
                "containerRuntimeEndpoint": f"unix://{socket}",
                "podLogsDir": str(folder / "pods"),
                "resolvConf": "/etc/resolv.conf",
                "imageGCHighThresholdPercent": 100,
                "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
            }
        )
    )
    return config


@contextmanager
def machine(cluster: Cluster, image: str) -> Iterator[Machine]:
    """Have a node in the cluster until the block ends; it starts with one image, which is also that of its sandboxes."""
    folder = Path(tempfile.mkdtemp(prefix="slipway-k8s-", dir="/var/tmp"))
    machine = Machine(folder)
    try:
        _network(folder)
        (folder / "containerd.toml").write_text(_CONTAINERD.format(folder=folder, image=image, plugins=_plugins()))
        cluster.run("containerd", shutil.which("containerd") or "containerd", "--config", folder / "containerd.toml")
        until(lambda: machine.socket.exists() and machine.ctr("version"), description="containerd answers")
        machine.load(image)
        cluster.run(
            "kubelet",
            program("kubelet"),
            f"--config={_kubelet(folder, machine.socket)}",
            f"--kubeconfig={cluster.kubeconfig}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'certificates'}",
            f"--hostname-override={NODE}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in POOL.items())}",
            f"--node-ip={GATEWAY}",
        )
        until(lambda: _ready(cluster), description="the node is ready")
        yield machine
    finally:
        _end(machine, cluster)


def _ready(cluster: Cluster) -> bool:
    conditions = cluster.get(f"/api/v1/nodes/{NODE}")["status"]["conditions"]
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _end(machine: Machine, cluster: Cluster) -> None:
    """Leave nothing: no pod, no process, no mount, no bridge."""
    with contextlib.suppress(AssertionError):
        for pod in cluster.items("/api/v1/pods"):
            where = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            cluster.session.delete(f"{cluster.server}{where}?gracePeriodSeconds=1", timeout=30)
        until(lambda: not cluster.items("/api/v1/pods"), 60)
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # containers, sandboxes: else they outlive it
        for task in machine.ctr("tasks", "list", "--quiet").split():
            machine.ctr("tasks", "rm", "--force", task)
    for process in reversed(cluster.processes[-2:]):
        process.terminate()
        process.wait(30)
    if machine.socket.exists():
        machine.socket.unlink()
    with open("/proc/mounts") as mounts:  # noqa: PTH123
        below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{machine.folder}/")]
    for path in reversed(below):
        subprocess.run(["umount", "--lazy", path], check=False)
    _remove_bridge()
    shutil.rmtree(machine.folder, ignore_errors=True)
