"""What a checkout says of its lock, and where its sockets are."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.helpers.every import every
from toolchain.checkout import Checkout
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine


def test_lock_pins_a_package_by_its_whole_name(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    with pytest.raises(ToolchainError, match=r"requirements\.lock is missing: restore it with `git checkout requi"):
        checkout.locked("pulumi")
    checkout.lock.write_text(
        "# pulumi==0\npulumi-aws==7.1.0 \\\n    --hash=sha256:aa\npulumi==3.2.1 \\\n    --hash=sha256:bb\nmarked==1;x\n"
    )
    assert [checkout.locked(name) for name in ("pulumi", "pulumi-aws", "marked")] == ["3.2.1", "7.1.0", "1"]
    for name in ("pulumi-docker", "umi", "pulumi."):
        with pytest.raises(ToolchainError, match=rf"requirements\.lock does not pin {name}: "):
            checkout.locked(name)


@every("length, elsewhere", [(104, False), (105, True)])
def test_longest_socket_stays_inside_up_to_containerds_limit(length: int, elsewhere: bool) -> None:
    """At 105 containerd refuses: "unix socket path too long (> 104)" (containerd, sys/socket_unix.go)."""
    longest = "/.slipway/run/docker/containerd/containerd.sock.ttrpc"
    checkout = Checkout(Path("/" + "é" * 2 + "x" * (length - len(longest) - 5)))  # a path is counted in bytes
    assert len(f"{checkout.root}{longest}".encode()) == length
    assert checkout.run == (Path(f"/run/slipway-{checkout.id}") if elsewhere else checkout.root / ".slipway/run")


CONTAINERDS = """\
time="2026-11-28T21:34:55.044764713Z" level=info msg="NRI interface is disabled by configuration."
containerd: failed to get listener for debug endpoint: "/c/run/docker/containerd/containerd-debug.sock": unix socket path too long (> 104)
time="2026-11-28T21:34:55.057459838Z" level=error msg="containerd did not exit successfully" error="exit status 1" module=libcontainerd
failed to start containerd: timeout waiting for containerd to start
"""
"""What an engine logs (26.1.5; 20.10.24 has the same lines) that was given a longer path."""


def test_engine_with_too_long_a_socket_says_so() -> None:
    said = r'^Docker engine [^:]*: containerd: failed .*": unix socket path too long \(> 104\); all output is in '
    with TemporaryDirectory(prefix="slipway-", dir="/tmp") as folder:  # its log is there, not in /run
        daemon = docker_engine.daemon(Checkout(Path(folder)))
        with pytest.raises(ToolchainError, match=said):
            daemon.start(
                ["sh", "-c", 'printf %s "$0" >&2; exit 1', CONTAINERDS], lambda: False, env=os.environ, seconds=10
            )
