"""The ways to a Docker daemon: each builds an image."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import docker
import pytest

from containers.engine.connection import EngineUnreachable, ssh_command
from tests.fakes.docker_relay import Relay
from tests.provider.conftest import write
from tests.provider.plugin import SELECTED, Failure, started

REPOSITORY = "parity-connection"


def build(folder: Path, variables: Mapping[str, str], environment: Mapping[str, str] | None = None) -> str:
    """Build an image over a connection and return its id."""
    write(folder, {"Dockerfile": "FROM scratch\nCOPY . /\n", "f": "x"})
    with started(folder, environment={"DOCKER_HOST": "", **(environment or {})}) as plugin:
        plugin.configure(**variables)
        inputs = plugin.check({"imageName": f"{REPOSITORY}:{folder.name}", "skipPush": True})
        return str(plugin.create(inputs)[1]["repoDigest"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / os.urandom(4).hex(), {"f": "x"})


def check(engine: docker.DockerClient, folder: Path, digest: str) -> None:
    tag = f"{REPOSITORY}:{folder.name}"
    assert engine.images.get(tag).id == digest
    engine.images.remove(tag)


def test_connection_to_unix_socket_builds(engine: docker.DockerClient, folder: Path, docker_host: str) -> None:
    check(engine, folder, build(folder, {"host": docker_host}))


def test_connection_to_host_of_environment_builds(engine: docker.DockerClient, folder: Path, docker_host: str) -> None:
    check(engine, folder, build(folder, {}, {"DOCKER_HOST": docker_host}))


def test_connection_over_tcp_builds(engine: docker.DockerClient, folder: Path, docker_host: str) -> None:
    with Relay(docker_host) as relay:
        check(engine, folder, build(folder, {"host": relay.host}))
        assert relay.connections > 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and certificates of a server at 127.0.0.1 and of a client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=parity")
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        (folder / "extension").write_text(extension)
        key, request, certificate = f"{name}-key.pem", f"{name}.csr", f"{name}.pem"
        openssl("req", *new[:3], "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2", "-extfile", "extension")
        openssl("x509", "-req", "-in", request, "-out", certificate, *signing)
    shutil.copy(folder / "client.pem", folder / "cert.pem")
    shutil.copy(folder / "client-key.pem", folder / "key.pem")
    return folder


@pytest.fixture
def server(certificates: Path) -> ssl.SSLContext:
    """The daemon's side of TLS, which requires a client's certificate of our CA."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_connection_with_certificate_path_builds(
    engine: docker.DockerClient, folder: Path, docker_host: str, certificates: Path, server: ssl.SSLContext
) -> None:
    with Relay(docker_host, server) as relay:
        check(engine, folder, build(folder, {"host": relay.host, "certPath": str(certificates)}))


def test_connection_with_certificate_texts_builds(
    engine: docker.DockerClient, folder: Path, docker_host: str, certificates: Path, server: ssl.SSLContext
) -> None:
    names = {"caMaterial": "ca.pem", "certMaterial": "cert.pem", "keyMaterial": "key.pem"}
    material = {key: (certificates / name).read_text() for key, name in names.items()}
    with Relay(docker_host, server) as relay:
        check(engine, folder, build(folder, {"host": relay.host, **material}))


def test_connection_without_certificate_fails(folder: Path, docker_host: str, server: ssl.SSLContext) -> None:
    with Relay(docker_host, server) as relay, pytest.raises(Failure, match="failed to connect to any docker daemon"):
        build(folder, {"host": relay.host})


def test_connection_to_a_certificate_for_another_name_fails(
    folder: Path, docker_host: str, certificates: Path, server: ssl.SSLContext
) -> None:
    """The certificate is our CA's, and names 127.0.0.1 alone."""
    with Relay(docker_host, server) as relay:
        host = relay.host.replace("127.0.0.1", "localhost")
        with pytest.raises(Failure) as failure:
            build(folder, {"host": host, "certPath": str(certificates)})
    if SELECTED == "embedded":
        assert "certificate is not valid for 'localhost'" in str(failure.value)
        assert "\n" not in str(failure.value)


@pytest.fixture
def ssh(tmp_path: Path, docker_host: str) -> Path:
    """A stand-in for ssh: it records its arguments and runs the remote command here."""
    script = tmp_path / "bin/ssh"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        f'printf "%s\\n" "$@" >> "{tmp_path}/arguments"\n'
        'while [ "$1" != -- ]; do shift; done\n'
        f'DOCKER_HOST="{docker_host}" exec sh -c "$3"\n'
    )
    script.chmod(0o755)
    return script


def test_connection_over_ssh_builds(engine: docker.DockerClient, folder: Path, ssh: Path) -> None:
    path = f"{ssh.parent}:{os.environ['PATH']}"
    variables = {"host": "ssh://me@far.example:2222", "sshOpts": '["-o","StrictHostKeyChecking=no"]'}
    check(engine, folder, build(folder, variables, {"PATH": path}))
    arguments = (ssh.parent.parent / "arguments").read_text().splitlines()
    assert arguments[:6] == ["-l", "me", "-p", "2222", "-o", "StrictHostKeyChecking=no"]
    assert "far.example" in arguments
    assert "docker system dial-stdio" in arguments


def test_connection_over_failing_ssh_has_its_message(folder: Path, ssh: Path) -> None:
    """The user reads ssh's message."""
    ssh.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    with pytest.raises(Failure) as failure:
        build(folder, {"host": "ssh://far.example"}, {"PATH": f"{ssh.parent}:{os.environ['PATH']}"})
    if SELECTED == "embedded":
        assert "ssh://far.example: Permission denied (publickey)." in str(failure.value)
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("url", "options", "command"),
    [
        ("ssh://h", [], ["ssh", "-o", "ConnectTimeout=30", "-T", "--", "h", "docker system dial-stdio"]),
        (
            "ssh://u@h:22/run/d.sock",
            ["-T", "-o", "ConnectTimeout=5"],
            [
                "ssh",
                "-l",
                "u",
                "-p",
                "22",
                "-T",
                "-o",
                "ConnectTimeout=5",
                "--",
                "h",
                "docker --host=unix:///run/d.sock system dial-stdio",
            ],
        ),
        ("ssh://h/a b;c", ["-T"], None),
    ],
    ids=str,
)
def test_ssh_command_has_user_port_and_options(url: str, options: list[str], command: list[str] | None) -> None:
    argv = ssh_command(urllib.parse.urlsplit(url), options)
    if command is None:
        assert argv[-1] == "docker '--host=unix:///a b;c' system dial-stdio", "the remote shell gets one word"
    else:
        assert argv == command


@pytest.mark.parametrize("url", ["ssh://u:p@h", "ssh:///x"])
def test_ssh_command_with_password_or_no_host_fails(url: str) -> None:
    with pytest.raises(EngineUnreachable, match="give a host, and a key instead of a password"):
        ssh_command(urllib.parse.urlsplit(url), [])
