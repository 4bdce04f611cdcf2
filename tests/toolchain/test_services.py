"""Engine and registry: started when there is none, ended by their own pid, and no trouble to another checkout."""

import io
import os
import shutil
import signal
import ssl
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.helpers.needs import needs
from tests.toolchain.clone import Clone, make, services_of
from toolchain.checkout import SOCKET_PATH_BYTES
from toolchain.machine import apt
from toolchain.machine.daemon import Daemon
from toolchain.machine.network import bridge
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine, docker_registry
from toolchain.version import numbers

Clones = tuple[Clone, Clone]


def _docker(clone: Clone, *words: str, stdin: bytes = b"") -> str:
    env = {"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{clone.checkout.run}/docker.sock"}
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, env=env, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def _image() -> bytes:
    """Return a root file system of one static program: Docker's own init."""
    program = shutil.which("docker-init")
    assert program
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        tar.add(program, "init")
    return buffer.getvalue()


def _mounts(clone: Clone) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(clone.root) in line]


def _rules(clone: Clone) -> list[str]:
    """Return the firewall rules that speak of a clone's bridge."""
    rules = []
    for table in ("filter", "nat"):
        words = ["iptables", "-w", "-t", table, "-S"]
        rules += subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return [rule for rule in rules if bridge.name(clone.checkout) in rule]


def test_two_checkouts_have_one_engine_each(clones: Clones) -> None:
    needs("root")
    a, b = clones
    parts = [docker_engine.get(clone.checkout) for clone in clones]
    assert [part.env["DOCKER_HOST"] for part in parts] == [
        f"unix://{clone.root}/.slipway/run/docker.sock" for clone in clones
    ]
    assert all(part.why.startswith("no running engine (") for part in parts)
    assert bridge.subnet(a.checkout) != bridge.subnet(b.checkout)
    assert len(_rules(a)) == len(_rules(b)) == 3
    _docker(a, "import", "-", "here", stdin=_image())
    assert "tini" in _docker(a, "run", "--rm", "--entrypoint", "/init", "here", "--version")
    assert _docker(b, "images", "-q") == ""
    assert docker_engine.get(a.checkout) == parts[0]

    _docker(a, "run", "--detach", "--entrypoint", "/init", "here", "-g", "/init", "--version")
    assert docker_engine.stop(a.checkout)
    assert not services_of(a.root)
    assert not _mounts(a)
    assert not Path(f"/sys/class/net/{bridge.name(a.checkout)}").exists()
    assert not _rules(a)
    assert not docker_engine.stop(a.checkout)

    assert _docker(b, "version", "--format", "{{.Server.Version}}") == parts[1].version
    assert docker_engine.stop(b.checkout)
    assert not _rules(b)


def test_engine_of_an_old_debian_is_of_a_newer_release(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("root")
    newer, installed = clones
    assert numbers(docker_engine.get(newer.checkout).version) >= (26,)
    monkeypatch.setenv("SLIPWAY_DOCKER_ENGINE", "installed")
    printed = subprocess.run(["dockerd", "--version"], capture_output=True, text=True, check=True).stdout
    assert numbers(docker_engine.get(installed.checkout).version) == numbers(printed)


def test_engine_without_containerd_says_why(clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("root")
    monkeypatch.setenv("SLIPWAY_DOCKER_ENGINE", "installed")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "containerd").write_text("#!/bin/sh\necho 'containerd: no such luck' >&2; exit 1\n")
    (tmp_path / "containerd").chmod(0o755)
    with pytest.raises(ToolchainError, match="^Docker engine .*: containerd: no such luck; all output is in "):
        docker_engine.get(clones[0].checkout)


def test_engine_without_its_storage_says_why(clones: Clones) -> None:
    needs("root")
    with pytest.raises(ToolchainError, match="^Docker engine .*: failed to start daemon: .*no-such-driver"):
        docker_engine.start_own(clones[0].checkout, options=["--storage-driver", "no-such-driver"])


def test_killed_engine_restarts_with_its_images(clones: Clones) -> None:
    needs("root")
    clone = clones[0]
    docker_engine.get(clone.checkout)
    _docker(clone, "import", "-", "kept", stdin=_image())
    pid = docker_engine.daemon(clone.checkout).pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while services_of(clone.root):
        assert time.monotonic() < until, "what the engine had started outlived it"
        time.sleep(0.05)
    assert docker_engine.find(clone.checkout) is None
    docker_engine.get(clone.checkout)
    assert _docker(clone, "images", "--format", "{{.Repository}}") == "kept"


def test_own_engine_pulls_through_users_proxy(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("root")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    docker_engine.get(clones[0].checkout)
    assert _docker(clones[0], "info", "--format", "{{.HTTPSProxy}}") == "http://proxy.invalid:3128"


def test_engine_without_bridge_restarts(clones: Clones) -> None:
    needs("root")
    clone = clones[0]
    docker_engine.get(clone.checkout)
    subprocess.run(["ip", "link", "delete", bridge.name(clone.checkout)], check=True)
    assert docker_engine.find(clone.checkout) is None
    docker_engine.get(clone.checkout)
    assert bridge.subnet(clone.checkout) is not None


def test_bridge_keeps_its_hardware_address(clones: Clones) -> None:
    needs("root")
    checkout = clones[0].checkout
    bridge.create(checkout)
    try:
        address = Path(f"/sys/class/net/{bridge.name(checkout)}/address")
        before = address.read_text()
        joins = [
            "ip",
            "link",
            "add",
            f"v{checkout.id}",
            "address",
            "02:00:00:00:00:01",
            "master",
            bridge.name(checkout),
        ]
        subprocess.run([*joins, "type", "veth", "peer", "name", f"w{checkout.id}"], check=True)
        assert address.read_text() == before
    finally:
        subprocess.run(["ip", "link", "delete", f"v{checkout.id}"], check=False)
        bridge.remove(checkout)


@pytest.mark.usefixtures("clones")
def test_deep_checkout_has_sockets_elsewhere(tmp_path: Path) -> None:
    needs("root")
    deep = make(tmp_path / ("a folder with 'quotes' " * 4) / ("x" * 60))
    run = deep.checkout.run
    assert run == Path(f"/run/slipway-{deep.checkout.id}")
    assert len(str(deep.root)) > SOCKET_PATH_BYTES
    try:
        part = docker_engine.get(deep.checkout)
        assert part.env == {"DOCKER_HOST": f"unix://{run}/docker.sock"}
        _docker(deep, "import", "-", "here", stdin=_image())
        assert "tini" in _docker(deep, "run", "--rm", "--entrypoint", "/init", "here", "--version")
        assert docker_engine.stop(deep.checkout)
        shutil.rmtree(run)
        docker_registry.get(deep.checkout)
        assert not run.exists(), "only an engine, and so only root, needs a place outside the checkout"
    finally:
        docker_registry.stop(deep.checkout)
        docker_engine.stop(deep.checkout)
        shutil.rmtree(run, ignore_errors=True)
    assert not services_of(deep.root)


def test_silent_configured_engine_is_one_line(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(
        ToolchainError, match=r"^the Docker engine at DOCKER_HOST=unix:///nonexistent/docker.sock does not"
    ):
        docker_engine.get(clones[0].checkout)


def test_running_engine_is_used(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("root")
    running, user = clones
    host = docker_engine.get(running.checkout).env["DOCKER_HOST"]
    monkeypatch.setenv("DOCKER_HOST", host)
    part = docker_engine.get(user.checkout)
    assert (part.used, part.why, part.env) == (f"the running engine at {host}", "", {})
    assert not docker_engine.stop(user.checkout)
    assert docker_engine.find(running.checkout)


def test_engine_of_current_context_is_used(clones: Clones, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs("root")
    running, user = clones
    host = docker_engine.get(running.checkout).env["DOCKER_HOST"]
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    subprocess.run(["docker", "context", "create", "mine", "--docker", f"host={host}"], check=True, capture_output=True)
    subprocess.run(["docker", "context", "use", "mine"], check=True, capture_output=True)
    config = {file: file.read_bytes() for file in (tmp_path / "docker").rglob("*") if file.is_file()}
    part = docker_engine.get(user.checkout)
    assert (part.used, part.env) == (f"the running engine at {host}", {"DOCKER_HOST": host})
    assert {file: file.read_bytes() for file in (tmp_path / "docker").rglob("*") if file.is_file()} == config


def test_engine_missing_without_root_is_one_line(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "is_root", lambda: False)
    with pytest.raises(
        ToolchainError, match=r"^no Docker engine: no running engine \(.*\)\. Start Docker, or give this user"
    ):
        docker_engine.get(clones[0].checkout)


def test_two_registries_keep_two_ports(clones: Clones) -> None:
    a, b = clones
    processes = [clone.start("docker_registry") for clone in clones]
    assert [process.wait(timeout=30) for process in processes] == [0, 0]
    ports = [docker_registry.get(clone.checkout).env["SLIPWAY_REGISTRY"] for clone in clones]
    assert len(set(ports)) == 2
    assert docker_registry.stop(a.checkout)
    assert not services_of(a.root)
    assert docker_registry.find(b.checkout)
    assert docker_registry.get(a.checkout).env["SLIPWAY_REGISTRY"] == ports[0]


def test_registry_moves_from_taken_port(clones: Clones) -> None:
    a, b = clones
    port = docker_registry.get(a.checkout).env["SLIPWAY_REGISTRY"].rpartition(":")[2]
    (b.checkout.state / "registry").mkdir(parents=True)
    (b.checkout.state / "registry" / "port").write_text(port)
    assert docker_registry.find(b.checkout) is None
    assert docker_registry.get(b.checkout).env["SLIPWAY_REGISTRY"] != f"127.0.0.1:{port}"


def test_configured_registry_is_used(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = clones
    registry = docker_registry.get(a.checkout)
    monkeypatch.setenv("SLIPWAY_REGISTRY", registry.env["SLIPWAY_REGISTRY"])
    assert docker_registry.get(a.checkout) == registry, "what a sourced .slipway/env says is still our own"
    assert docker_registry.get(b.checkout).used == registry.env["SLIPWAY_REGISTRY"]
    assert not docker_registry.stop(b.checkout)


class _Answering(BaseHTTPRequestHandler):
    status: ClassVar = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/v2/" else 404)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        return


@pytest.fixture(params=["http", "https"])
def answering(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of what answers as `_Answering` says, over HTTPS with a certificate that nobody has heard of."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    if request.param == "https":
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "both", "-out", "cert"]
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "cert", tmp_path / "both")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("status", "usable"), [(200, True), (401, True), (404, False), (502, False)])
def test_configured_registry_is_probed(
    clones: Clones, monkeypatch: pytest.MonkeyPatch, answering: str, status: int, usable: bool
) -> None:
    monkeypatch.setattr(_Answering, "status", status)
    monkeypatch.setenv("SLIPWAY_REGISTRY", answering)
    if usable:
        assert docker_registry.get(clones[0].checkout).used == answering
        return
    with pytest.raises(ToolchainError, match=rf"^no registry answers at SLIPWAY_REGISTRY={answering} \(host:port\)"):
        docker_registry.get(clones[0].checkout)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ghcr.io/acme", "a b"])
def test_address_without_registry_is_one_line(clones: Clones, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("SLIPWAY_REGISTRY", address)
    with pytest.raises(ToolchainError, match=r"^no registry answers at SLIPWAY_REGISTRY="):
        docker_registry.find(clones[0].checkout)


@pytest.mark.parametrize("host", ["tcp://192.0.2.1:2375", "ssh://builder.invalid"])
def test_remote_engine_needs_registry_it_reaches(clones: Clones, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(ToolchainError, match=r"^the Docker engine is on another machine .*: set SLIPWAY_REGISTRY to "):
        docker_registry.get(clones[0].checkout)
    monkeypatch.setenv("SLIPWAY_REGISTRY", "registry.invalid:5000")
    assert docker_registry.get(clones[0].checkout).used == "registry.invalid:5000"


@pytest.mark.parametrize(
    ("host", "tls", "said"),
    [
        ("tcp://192.0.2.1:2375", "", True),
        ("tcp://192.0.2.1:2376", "1", False),
        ("tcp://127.0.0.1:2375", "", False),
        ("ssh://builder.invalid", "", False),
    ],
)
def test_engine_in_clear_is_named(
    clones: Clones, monkeypatch: pytest.MonkeyPatch, host: str, tls: str, said: bool
) -> None:
    clones[0].program("docker", "echo 26.1.5")
    monkeypatch.setenv("PATH", str(clones[0].programs), prepend=os.pathsep)
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", tls)
    part = docker_engine.find(clones[0].checkout)
    assert part
    assert ("without TLS, so that whoever reaches it is root there" in part.used) == said


def test_registry_is_unpacked_where_not_installed(clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = clones[0].checkout
    programs = Path(clones[0].programs)
    for name in ("apt-get", "dpkg-deb", "tar", "sh", "rm"):
        path = shutil.which(name)
        assert path
        (programs / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(programs))
    part = docker_registry.get(checkout)
    assert part.used.startswith("Debian's docker-registry at 127.0.0.1:")
    assert (checkout.bin / "docker-registry").exists()


def test_stale_pid_is_not_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        daemon = Daemon("service", tmp_path / "pid", tmp_path / "log", mark=str(tmp_path / "mark"))
        daemon.pid_file.write_text(f"{process.pid}\n")
        assert daemon.pid() is None
        assert not daemon.stop()
        assert process.poll() is None
        assert not daemon.pid_file.exists()
    finally:
        process.kill()
        process.wait()


def test_hanging_service_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"trap '' TERM; touch {mark}; while :; do sleep 0.1; done"
    daemon = Daemon("service", tmp_path / "pid", tmp_path / "log", mark=str(mark))
    daemon.start(["sh", "-c", script], mark.exists, env=os.environ, seconds=10)
    pid = daemon.pid()
    assert pid is not None
    assert daemon.stop(seconds=0.5)
    assert daemon.pid() is None


def test_service_that_exits_at_once_is_one_line(tmp_path: Path) -> None:
    daemon = Daemon("service", tmp_path / "pid", tmp_path / "log", mark=str(tmp_path))
    with pytest.raises(
        ToolchainError, match=r"^service ended as soon as it was started: no such luck; all output is in "
    ):
        daemon.start(["sh", "-c", "echo no such luck >&2; exit 1"], lambda: False, env=os.environ, seconds=10)
