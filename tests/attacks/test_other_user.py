"""Another user of this machine: what listens, what is locked and what is written here is not theirs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import empty_pb2

from tests.engine.project import MANIFESTS, Project
from tests.helpers import pushed_image, registry_api
from tests.provider.plugin import Plugin, started
from tests.toolchain.clone import ROOT, make
from toolchain import environment
from toolchain.checkout import Checkout
from toolchain.machine import files
from toolchain.machine.locking import alone
from toolchain.machine.steps import command
from toolchain.parts import base_image, docker_engine, docker_registry
from toolchain.parts.part import Part, recall, remember

STRANGER = 65534
"""Debian's `nobody`."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
"""What opens a gRPC connection. A server answers it with its settings."""

CALL = """
import os, sys, grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
os.setgroups([]); os.setgid({user}); os.setuid({user})
channel = grpc.insecure_channel("{address}")
stub = provider_pb2_grpc.ResourceProviderStub(channel)
for name, request in (
    ("GetPluginInfo", empty_pb2.Empty()), ("Cancel", empty_pb2.Empty()),
    ("Configure", provider_pb2.ConfigureRequest()), ("Create", provider_pb2.CreateRequest()),
    ("Invoke", provider_pb2.InvokeRequest()), ("GetSchema", provider_pb2.GetSchemaRequest()),
):
    try:
        getattr(stub, name)(request, timeout=5)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            continue
    print(name)
"""
"""Prints the methods that answered, be it with an error of their own. Its libraries are read before it is a stranger."""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plugin, int]]:
    with started(tmp_path_factory.mktemp("plugin"), "embedded") as running:
        yield running, _port(running)


def _port(running: Plugin) -> int:
    """Return the port as a stranger finds it: the kernel lists every socket to everybody."""
    links = [str(file.readlink()) for file in Path(f"/proc/{running.process.pid}/fd").iterdir()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    return next(int(row[1][-4:], 16) for row in rows if row[3] == "0A" and row[9] in inodes)


def _call(address: str, user: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(user=user, address=address)],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout


def _as_stranger(program: str, *words: str) -> str:
    """Run a program of the standard library as the stranger; return what it prints, or its error's last line."""
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", program, *words],
        user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout if not done.returncode else done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("address", ["ipv4:127.0.0.1", "ipv6:[::ffff:127.0.0.1]"])
def test_strangers_call_of_a_plugin_is_refused(plugin: tuple[Plugin, int], address: str) -> None:
    running, port = plugin
    assert _call(f"{address}:{port}", STRANGER) == ""
    assert "Create" in _call(f"{address}:{port}", os.geteuid()), "the same calls of our own are answered"
    assert running.process.poll() is None


def test_plugin_sends_a_stranger_no_byte(plugin: tuple[Plugin, int]) -> None:
    program = (
        "import socket, sys\n"
        "peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10)\n"
        "try:\n    peer.sendall(bytes.fromhex(sys.argv[2])); print(len(peer.recv(1)))\n"
        "except ConnectionError:\n    print(0)"
    )
    assert _as_stranger(program, str(plugin[1]), PREFACE.hex()).strip() == "0"


def test_strangers_closed_or_reset_connection_counts_as_his(plugin: tuple[Plugin, int]) -> None:
    """A socket that is closed has no owner any more: in the kernel's table it is root's, with the number 0."""
    program = (
        "import socket, struct, sys\n"
        "for linger in [0, 1] * 200:\n"
        "    peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10)\n"
        "    if linger:\n"
        "        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n"
        "    try:\n        peer.sendall(bytes.fromhex(sys.argv[2]))\n"
        "        linger or peer.shutdown(socket.SHUT_WR)\n        got = 0 if linger else len(peer.recv(1))\n"
        "    except OSError:\n        got = 0\n"
        "    peer.close()\n    assert not got, 'answered'\n"
        "print('refused')"
    )
    assert _as_stranger(program, str(plugin[1]), PREFACE.hex()).strip() == "refused"
    assert plugin[0].call("GetPluginInfo", empty_pb2.Empty()).version


def test_port_that_changes_hands_admits_no_former_owner(plugin: tuple[Plugin, int]) -> None:
    """The stranger leaves bytes in a connection, resets it, and root's own connection gets the same port at once."""
    for _ in range(50):
        with socket.socket() as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ours.bind(("127.0.0.1", 0))
            port = ours.getsockname()[1]
        program = (
            "import socket, struct, sys\n"
            "peer = socket.socket(); peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            "peer.bind(('127.0.0.1', int(sys.argv[2]))); peer.connect(('127.0.0.1', int(sys.argv[1])))\n"
            "try:\n    peer.sendall(bytes.fromhex(sys.argv[3])); print(len(peer.recv(1)))\n"
            "except ConnectionError:\n    print(0)\n"
            "peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); peer.close()"
        )
        assert _as_stranger(program, str(plugin[1]), str(port), PREFACE.hex()).strip() == "0"
        with socket.socket() as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ours.bind(("127.0.0.1", port))
            ours.settimeout(10)
            ours.connect(("127.0.0.1", plugin[1]))
            ours.sendall(PREFACE)
            assert ours.recv(1)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_many_silent_strangers_keep_nobody_out(plugin: tuple[Plugin, int]) -> None:
    program = (
        "import socket, sys\n"
        "peers = [socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10) for _ in range(300)]\n"
        "print('open', flush=True)\nsys.stdin.read()"
    )
    stranger = subprocess.Popen(
        ["/usr/bin/python3", "-I", "-c", program, str(plugin[1])],
        user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "open\n"
        begun = time.monotonic()
        assert "GetPluginInfo" in _call(f"ipv4:127.0.0.1:{plugin[1]}", os.geteuid())
        assert time.monotonic() - begun < 30
    finally:
        stranger.communicate(timeout=10)


def test_stranger_cannot_hold_the_lock_of_a_checkout(open_folder: Path) -> None:
    state = open_folder / ".slipway"
    state.mkdir()
    lock = state / "lock"
    lock.touch(mode=0o644)  # of an earlier version
    state.chmod(0o755)
    with alone(Checkout(open_folder), "up"):
        pass
    program = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB); print('held')"
    assert "PermissionError" in _as_stranger(program, str(lock))


READ = """
import os, sys
for folder, folders, files in os.walk(sys.argv[1]):
    print(*(os.path.join(folder, name) for name in files), sep=os.linesep)
for name in sys.argv[2:]:
    try:
        open(os.path.join(sys.argv[1], name)).close() or print(name)
    except OSError:
        pass
"""
"""Prints the files that a walk finds, and those of a list that can be read."""


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_stranger_reads_nothing_that_a_checkout_records(open_folder: Path, umask: int) -> None:
    checkout = Checkout(open_folder)
    former = os.umask(umask)
    try:
        (checkout.state / "parts").mkdir(parents=True)
        for name in ("env", "parts/old.json", "key"):  # of an earlier version
            (checkout.state / name).write_text("x")
        with alone(checkout, "up"):
            environment.save(checkout, [])
            remember(checkout, Part("a", "b", "c"))
            command(["true"], checkout.logs / "true.log")
            files.write(checkout.state / "registry" / "config.yml", "{}")
            checkout.cache.mkdir(exist_ok=True)
            (checkout.cache / "open.list").write_text("")
    finally:
        os.umask(former)
    names = [str(path.relative_to(checkout.state)) for path in checkout.state.rglob("*") if path.is_file()]
    assert {"env", "passphrase", "parts/a.json", "parts/old.json", "logs/true.log", "registry/config.yml"} <= {*names}
    assert _as_stranger(READ, str(checkout.state), *names).split() == ["cache/open.list"], "apt's user reads its list"


WRITABLE = "import os, sys; print(*(path for path in sys.argv[1:] if os.access(path, os.W_OK)))"


def test_stranger_replaces_no_program_of_a_checkout(open_folder: Path) -> None:
    """Under umask 000, what runs with all secrets was everybody's to write to."""
    checkout = Checkout(open_folder)
    former = os.umask(0)
    try:
        (checkout.venv / "bin").mkdir(parents=True)  # of an earlier run
        with alone(checkout, "up"):
            checkout.bin.mkdir()
            (checkout.bin / "pulumi").write_text("")
            command(["sh", "-c", f"touch {checkout.bin}/tool"], checkout.logs / "touch.log")
    finally:
        os.umask(former)
    paths = (checkout.state, checkout.bin, checkout.venv, *checkout.bin.iterdir())
    assert _as_stranger(WRITABLE, *map(str, paths)).strip() == ""


@pytest.fixture
def project(open_folder: Path) -> Project:
    project = Project(open_folder / "project")
    project.add_stack()
    return project


@pytest.fixture
def moved_base() -> Iterator[str]:
    """The name of the bootstrapped base image, whose tag a thief of the registry's login has moved."""
    digests = json.loads(os.environ.get("SLIPWAY_MIRRORS", "{}")).get("imageDigests", {})
    if not digests:
        pytest.skip("the base image was pulled")
    ((name, digest),) = digests.items()
    repository, _, tag = name.rpartition(":")
    theirs = pushed_image.push(name, "a stranger's").rpartition("@")[2]
    pushed_image.push(f"{repository}:trixie-slim", "a stranger's")
    yield name
    ours = registry_api.send("GET", f"{repository}/manifests/{digest}", headers={"Accept": MANIFESTS})
    kind = {"Content-Type": ours.headers["Content-Type"]}
    for version, method in ((theirs, "DELETE"), (tag, "PUT")):
        registry_api.send(method, f"{repository}/manifests/{version}", ours.content, kind).raise_for_status()


def test_moved_tag_of_the_base_image_changes_no_build(project: Project, moved_base: str) -> None:
    project.write("dockerfiles/link0/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG WORD\nENV WORD=${WORD}\n")
    project.configure(base="debian:bookworm-slim")
    project.up()
    outputs = project.outputs()
    assert outputs["plan"]["link0"]["args"]["BASE_IMAGE"].startswith(f"{moved_base}@sha256:")
    assert project.config_of(outputs["images"]["link0"]["ref"])["rootfs"]["diff_ids"]
    part = base_image.find(Checkout.here())
    assert part is not None
    assert json.loads(part.env["SLIPWAY_MIRRORS"])["imageDigests"].keys() == {moved_base}


def test_other_tags_of_the_base_image_are_not_the_thiefs(project: Project, moved_base: str) -> None:
    project.configure(base="debian:trixie-slim")
    shown = project.stacks("show", "t")
    assert "debian:trixie-slim" in shown
    assert moved_base.rpartition(":")[0] not in shown


def test_base_image_recorded_without_a_digest_is_made_anew(open_folder: Path) -> None:
    """Earlier versions recorded none, and the registry's tag may be a stranger's by now."""
    clone = make(open_folder)
    here = base_image.find(Checkout.here())
    if here is None or not here.env:
        pytest.skip("the base image was pulled")
    parts = [recall(Checkout.here(), name) for name in (docker_engine.NAME, docker_registry.NAME)]
    for part in (*filter(None, parts), here):
        remember(clone.checkout, part)
    assert base_image.find(clone.checkout) == here
    value = json.loads(here.env["SLIPWAY_MIRRORS"])
    remember(clone.checkout, replace(here, env={"SLIPWAY_MIRRORS": json.dumps({"images": value["images"]})}))
    assert base_image.find(clone.checkout) is None


@pytest.mark.parametrize("content", [b"name: slipway\n", b"name: slipway\ndescription: \xe9\n"])
def test_repository_of_another_user_runs_no_code(open_folder: Path, content: bytes) -> None:
    """A stranger waits in a folder that all can write, such as `/tmp`, for who works below it."""
    (installed := open_folder / "installed").mkdir()
    shutil.copy(ROOT / "toolchain/release/launcher.py", installed)
    (installed / "release.tar.gz").write_bytes(b"the release")
    (shared := open_folder / "shared").mkdir(mode=0o1777)
    (mine := shared / "mine").mkdir()
    release = shared / ".slipway/release"
    (release / "toolchain").mkdir(parents=True)
    (release / "archive.sha256").write_text(hashlib.sha256(b"the release").hexdigest())
    (release / "toolchain/__init__.py").touch()
    (release / "toolchain/verbs.py").write_text("def main(words):\n    print('stolen')\n    return 1\n")
    (shared / "Pulumi.yaml").write_bytes(content)
    command = [sys.executable, "-c", "import launcher, sys; sys.exit(launcher.main())", "check"]

    def run() -> subprocess.CompletedProcess[str]:
        variables = {"PYTHONPATH": str(installed)}
        return subprocess.run(command, cwd=mine, env=variables, capture_output=True, text=True, timeout=60, check=False)

    assert run().stdout == "stolen\n"  # while all of it is one's own
    for path in (shared / "Pulumi.yaml", *shared.glob(".slipway/**/*")):
        os.chown(path, STRANGER, STRANGER)
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "is in no folder with a Pulumi.yaml of Slipway" in done.stderr
