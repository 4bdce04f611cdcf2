"""Another user of this machine, at the registry that Slipway starts: it lets nobody else in, and nobody passes for it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker.auth
import docker.errors
import pytest

from components.supply_chain.published_product import FindPublished
from containers.errors import SlipwayError
from containers.registry.client import Repository
from tests.engine.project import MANIFESTS
from tests.helpers import pushed_image, registry_api
from tests.helpers.free_port import free_port
from tests.toolchain.clone import Clone, make
from toolchain.checkout import Checkout
from toolchain.machine.locking import alone
from toolchain.parts import docker_registry
from toolchain.provider.docker_api.docker_config import Keychain
from toolchain.provider.inputs import BuildInputs, ImageInputs, RegistryInputs
from toolchain.registry_login import registry_account, registry_port

STRANGER = 65534
"""Debian's `nobody`."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")


def _as_stranger(*words: str | Path, stdin: str = "") -> str:
    done = subprocess.run(
        words, user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", input=stdin,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


ASK = """
import base64, json, sys, urllib.error, urllib.request
address, image, digest, *guesses = sys.argv[1:]
kind = "application/vnd.docker.distribution.manifest.v2+json"
requests = [
    ("GET", "", None), ("GET", "_catalog", None), ("GET", f"{image}/tags/list", None), ("HEAD", f"{image}/manifests/1", None),
    ("GET", f"{image}/manifests/{digest}", None), ("GET", f"{image}/blobs/{digest}", None),
    ("POST", f"{image}/blobs/uploads/", b""), ("POST", f"mine/blobs/uploads/?mount={digest}&from={image}", b""),
    ("PUT", f"{image}/manifests/1", b"{}"), ("PUT", "mine/manifests/1", b"{}"),
    ("DELETE", f"{image}/manifests/{digest}", None), ("DELETE", f"{image}/blobs/{digest}", None),
    ("GET", f"../v2/{image}/manifests/1", None), ("GET", f"/{image}/manifests/1", None),
]
logins = [{}, *({"Authorization": "Basic " + base64.b64encode(guess.encode()).decode()} for guess in guesses)]
for method, path, data in requests:
    for login in logins:
        request = urllib.request.Request(f"http://{address}/v2/{path}", data, {"Content-Type": kind, **login}, method=method)
        try:
            print(method, path, urllib.request.urlopen(request, timeout=10).status)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                print(method, path, error.code)
"""
"""Prints each request that is answered with something else than 401."""


def _shown(address: str) -> str:
    repository = f"{address}/attack/target"
    return str(registry_api.send("GET", f"{repository}/manifests/1", headers={"Accept": MANIFESTS}).headers)


def test_stranger_neither_reads_nor_writes_in_the_registry() -> None:
    address = os.environ["SLIPWAY_REGISTRY"]
    digest = pushed_image.push(f"{address}/attack/target:1", "ours").rpartition("@")[2]
    guesses = (":", "slipway:", "slipway:slipway", f"slipway:{registry_account.USER}", "admin:admin")
    answered = _as_stranger("/usr/bin/python3", "-I", "-c", ASK, address, "attack/target", digest, *guesses)
    assert answered == ""
    assert digest in _shown(address)


@contextmanager
def _reachable(tmp_path: Path) -> Iterator[None]:
    """Open pytest's folders, which are closed to others, so that only the modes of `.slipway` keep a stranger out."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(0o755)
    yield


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clone]:
    """A checkout with a registry of its own, on a port of its own; its user has sourced `.slipway/env`."""
    monkeypatch.delenv("SLIPWAY_REGISTRY")
    clone = make(tmp_path)
    with _reachable(tmp_path), alone(clone.checkout, "test"):
        port = free_port()
        monkeypatch.setattr(docker_registry, "PORTS", range(port, port + 50))
        part = docker_registry.get(clone.checkout)
        for name, value in part.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", part.path[0], prepend=os.pathsep)
        yield clone
    docker_registry.stop(clone.checkout)


def _address(clone: Clone) -> str:
    return registry_port.address(registry_port.ports(clone.checkout)[-1])


def test_stranger_reads_the_password_nowhere(clone: Clone) -> None:
    state, secret = clone.checkout.state, registry_account.password(clone.checkout)
    assert len(secret) > 40
    holders = [file for file in state.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    assert holders == [state / "registry" / "password"]
    assert holders[0].stat().st_mode & 0o777 == 0o600
    pid = registry_port.daemon(clone.checkout).pid()
    for process in (f"/proc/{pid}/cmdline", f"/proc/{pid}/environ"):
        assert secret.encode() not in Path(process).read_bytes()
    script = 'cat "$@"; ls "$(dirname "$1")"'
    files: list[str | Path] = [
        holders[0],
        holders[0].with_name("htpasswd"),
        state / "docker-config/config.json",
        f"/proc/{pid}/environ",
    ]
    answer = _as_stranger("sh", "-c", script, "sh", *files)
    assert answer.count("Permission denied") == len(files) + 1
    assert "slipway" not in answer.replace(str(state), "")
    # The helper itself is a program that everybody may run.
    (helper,) = (state / "bin").glob("docker-credential-*")
    answer = _as_stranger(helper, "get", stdin=_address(clone))
    assert secret not in answer
    assert "Permission" in answer
    assert docker.auth.load_config().resolve_authconfig(_address(clone))["Password"] == secret


LISTEN = """
import http.server, json, sys
class Squatter(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        open(sys.argv[2], "a").write(f"{self.command} {self.path} {self.headers.get('Authorization')}\\n")
        self.send_response(int(sys.argv[3]))
        self.send_header("WWW-Authenticate", 'Basic realm="slipway"')
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Docker-Content-Digest", "sha256:" + "a" * 64)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Squatter).serve_forever()
"""
"""What looks like a registry, and notes all that it is sent."""


@contextmanager
def _squatter(port: int, folder: Path, words: list[str | Path]) -> Iterator[Path]:
    """A stranger's program at a port; yields the file of what it was sent."""
    heard = folder / "heard"
    heard.touch()
    heard.chmod(0o666)
    process = subprocess.Popen(words, user=STRANGER, group=STRANGER, extra_groups=[], cwd="/")
    try:
        end = time.monotonic() + 20
        while not docker_registry.answers(f"127.0.0.1:{port}"):
            assert time.monotonic() < end
            time.sleep(0.05)
        heard.write_text("")
        yield heard
    finally:
        process.kill()
        process.wait()


def _listening(port: int, folder: Path, status: int) -> list[str | Path]:
    return ["/usr/bin/python3", "-I", "-c", LISTEN, str(port), folder / "heard", str(status)]


def _real(port: int, folder: Path) -> list[str | Path]:
    config = folder / "theirs.yml"
    (folder / "theirs").mkdir(mode=0o777)
    (folder / "theirs").chmod(0o777)
    content = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(folder / "theirs")}}}
    config.write_text(json.dumps({**content, "http": {"addr": f"127.0.0.1:{port}"}}))
    return [docker_registry.program(Checkout.here()), "serve", config]


SQUATTERS: dict[str, Callable[[int, Path], list[str | Path]]] = {
    "asks for a login": lambda port, folder: _listening(port, folder, 401),
    "takes everything": lambda port, folder: _listening(port, folder, 200),
    "a real registry": _real,
}


@pytest.mark.parametrize("squatter", SQUATTERS.values(), ids=SQUATTERS)
def test_strangers_registry_at_our_port_is_not_ours(
    clone: Clone, squatter: Callable[[int, Path], list[str | Path]], tmp_path: Path
) -> None:
    former, secret = _address(clone), registry_account.password(clone.checkout)
    port = int(former.rpartition(":")[2])
    docker_registry.stop(clone.checkout)
    with _squatter(port, tmp_path, squatter(port, tmp_path)) as heard:
        _gets_nothing(former)
        assert docker_registry.find(clone.checkout) is None
        moved = docker_registry.get(clone.checkout)
        assert moved.env["SLIPWAY_REGISTRY"] == _address(clone) != former
        # A shell that has sourced the earlier `.slipway/env` still names the stranger's port.
        assert os.environ["SLIPWAY_REGISTRY"] == former
        assert docker_registry.get(clone.checkout) == docker_registry.find(clone.checkout) == moved
        _gets_nothing(former)
        assert "Basic" not in heard.read_text()
    assert registry_account.password(clone.checkout) == secret
    assert docker.auth.load_config().resolve_authconfig(_address(clone))["Password"] == secret


def _gets_nothing(address: str) -> None:
    """Our clients take nothing from whoever listens there, and tell them nothing."""
    reason = rf"the registry of this checkout does not run at {address}: `make up` or `make ready` starts it"
    with pytest.raises(docker.errors.DockerException, match=reason):
        docker.auth.load_config().resolve_authconfig(address)
    recipe = BuildInputs("", "", {}, "2", [], [], "", "", "linux/amd64")
    with pytest.raises(SlipwayError, match=reason):
        Keychain(ImageInputs(f"{address}/acme/x:1", recipe, RegistryInputs(), skip_push=False))
    product: dict[str, Any] = {"ref": f"{address}/acme/wheel:x1", "needed": True, "trusted": True}
    with pytest.raises(SlipwayError, match=reason):
        FindPublished().run_as(product, None)
    with suppress(SlipwayError):
        Repository(f"{address}/acme/x:1").digest()
    assert address not in docker.auth.load_config().get_all_credentials()  # type: ignore[no-untyped-call]
    for words in (["pull", f"{address}/acme/x:1"], ["manifest", "inspect", "--insecure", f"{address}/acme/x:1"]):
        subprocess.run(["docker", *words], capture_output=True, timeout=60, check=False)


def test_registry_of_an_earlier_version_gets_a_login(clone: Clone) -> None:
    """It has none, and runs on as long as the machine does."""
    docker_registry.stop(clone.checkout)
    port = free_port()  # the product's own choice is any other test's, too
    registry_port.keep(clone.checkout, port)
    config = registry_port.folder(clone.checkout) / "config.yml"
    content = json.loads(config.read_text())
    del content["auth"]
    content["http"]["addr"] = registry_port.address(port)
    config.write_text(json.dumps(content))
    registry_port.daemon(clone.checkout).start(
        [docker_registry.program(clone.checkout), "serve", config],
        lambda: docker_registry.answers(_address(clone)), env=os.environ, seconds=20,
    )  # fmt: skip
    image = pushed_image.push(f"{_address(clone)}/a/b:1", "before")
    assert docker_registry.find(clone.checkout) is None
    docker_registry.get(clone.checkout)
    assert _address(clone) == registry_port.address(port)
    answered = _as_stranger("/usr/bin/python3", "-I", "-c", ASK, _address(clone), "a/b", image.rpartition("@")[2])
    assert answered == ""
    assert registry_api.fetch(image.replace("@", "/manifests/"), MANIFESTS)
