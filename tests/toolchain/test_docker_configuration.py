"""The Docker configuration of a sourced `.slipway/env`: our registry's login, and all else is the user's own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.auth import load_config

from tests.provider.conftest import _HTPASSWD, PASSWORD, USER, Registry, private_registry
from tests.toolchain.clone import Clone, make
from toolchain.registry_login import docker_configuration

CANARY = "canary"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry of the user's own, with a login."""
    (tmp_path / "registry").mkdir()
    with private_registry(tmp_path / "registry", htpasswd=_HTPASSWD) as registry:
        yield registry


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own configuration."""
    folder = tmp_path / "home" / ".docker"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    return folder


@pytest.fixture
def clone(tmp_path: Path, theirs: Path) -> Clone:
    assert theirs
    return make(tmp_path)


def source(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepare the checkout, and source its `.slipway/env`; return the configuration's folder."""
    docker_configuration.save(clone.checkout)
    folder = docker_configuration.folder(clone.checkout)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    if str(clone.checkout.bin) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", str(clone.checkout.bin), prepend=os.pathsep)
    return folder


def docker(*words: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def log_in(address: str) -> None:
    docker("login", "--username", USER, "--password-stdin", address, stdin=PASSWORD)


def test_plugin_that_is_installed_later_is_there(clone: Clone, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(clone, monkeypatch)
    plugin = theirs / "cli-plugins" / "docker-later"
    plugin.parent.mkdir()
    plugin.write_text("""#!/bin/sh
[ "$1" = docker-cli-plugin-metadata ] || exec echo it runs
echo '{"SchemaVersion": "0.1.0", "Vendor": "Acme", "Version": "1"}'
""")
    plugin.chmod(0o755)
    assert docker("later") == "it runs\n"


def test_login_in_a_sourced_shell_is_the_users_own(
    clone: Clone, theirs: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = source(clone, monkeypatch)
    log_in(registry.address)
    stored = json.loads((theirs / "config.json").read_text())
    assert [*stored["auths"]] == [registry.address]
    assert (theirs / "config.json").stat().st_mode & 0o777 == 0o600
    auth = stored["auths"][registry.address]["auth"]
    assert not [file for file in ours.rglob("*") if not file.is_symlink() and auth in file.read_text()]
    # The user's other shells know it, and forget it with this one.
    monkeypatch.delenv("DOCKER_CONFIG")
    assert "Succeeded" in docker("login", registry.address)
    source(clone, monkeypatch)
    docker("logout", registry.address)
    assert json.loads((theirs / "config.json").read_text())["auths"] == {}


def test_login_of_before_is_used_and_not_copied(
    clone: Clone, theirs: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(registry.address)
    before = (theirs / "config.json").read_bytes()
    ours = source(clone, monkeypatch)
    assert "Succeeded" in docker("login", registry.address)  # with what is stored
    assert [*load_config().get_all_credentials()] == [registry.address]  # type: ignore[no-untyped-call]
    assert json.loads((theirs / "config.json").read_bytes()) == json.loads(before)
    assert json.loads((ours / "config.json").read_text())["auths"] == {registry.address: {}}


def test_users_helper_keeps_and_gives_the_users_logins(
    clone: Clone, theirs: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    helper = programs / "docker-credential-keys"
    store = tmp_path / "store"
    helper.write_text(
        f'#!/bin/sh\ncase $1 in\nstore) cat > {store} ;;\nerase) rm {store} ;;\nlist) echo "{{}}" ;;\n'
        f'get) cat {store} 2> /dev/null || {{ echo "credentials not found in native keychain"; exit 1; }} ;;\nesac\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    (theirs / "config.json").write_text(json.dumps({"credsStore": "keys"}))
    source(clone, monkeypatch)
    log_in(registry.address)
    assert json.loads(store.read_text())["Secret"] == PASSWORD
    assert json.loads((theirs / "config.json").read_text()) == {"credsStore": "keys"}
    assert "Succeeded" in docker("login", registry.address)
    docker("logout", registry.address)
    assert not store.exists()
    (theirs / "config.json").write_text(json.dumps({"credsStore": "gone"}))
    answer = subprocess.run(
        [f"docker-credential-slipway-{clone.checkout.id}", "get"], input="r.example", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (answer.returncode, answer.stdout) == (1, "docker-credential-gone: No such file or directory\n")


def test_helper_of_a_registry_goes_before_the_one_of_all(
    clone: Clone, theirs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("vault", "keys"):
        (programs / f"docker-credential-{name}").write_text(f"#!/bin/sh\necho {name} $1 $(cat)\n")
        (programs / f"docker-credential-{name}").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    (theirs / "config.json").write_text(json.dumps({"credHelpers": {"r.example": "vault"}, "credsStore": "keys"}))
    source(clone, monkeypatch)
    for server, answer in {"r.example": "vault get r.example\n", "o.example": "keys get o.example\n"}.items():
        words = [f"docker-credential-slipway-{clone.checkout.id}", "get"]
        assert subprocess.run(words, input=server, stdout=subprocess.PIPE, text=True, check=True).stdout == answer


def test_stored_login_is_for_its_registry_alone(clone: Clone, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older clients stored an address in place of a name."""
    (theirs / "config.json").write_text(json.dumps({"auths": {"https://r.example/v2/": {"auth": "bWU6aHVudGVyMg=="}}}))
    source(clone, monkeypatch)

    def answer(server: str) -> str:
        words = [f"docker-credential-slipway-{clone.checkout.id}", "get"]
        return subprocess.run(words, input=server, stdout=subprocess.PIPE, text=True, check=False).stdout

    login = {"ServerURL": "r.example", "Username": "me", "Secret": "hunter2"}
    assert json.loads(answer("r.example")) == login
    assert answer("o.example") == "credentials not found in native keychain\n"


def test_users_other_settings_hold_in_a_sourced_shell(
    clone: Clone, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    docker("context", "create", "mine", "--docker", "host=tcp://192.0.2.1:1")
    secret = {"HttpHeaders": {"X": CANARY}, "proxies": {"default": {"httpProxy": f"http://u:{CANARY}@p.example:1"}}}
    content = {"currentContext": "mine", "psFormat": "table", "auths": {"r.example": {"auth": CANARY}}, **secret}
    (theirs / "config.json").write_text(json.dumps(content))
    for _ in range(2):  # and again, in the shell that has sourced it
        ours = source(clone, monkeypatch)
        assert docker("context", "show").strip() == "mine"
        text = (ours / "config.json").read_text()
        assert CANARY not in text
        assert json.loads(text)["proxies"] == {"default": {"httpProxy": "http://p.example:1"}}
        assert json.loads(text)["psFormat"] == "table"
        assert docker_configuration.users() == theirs
