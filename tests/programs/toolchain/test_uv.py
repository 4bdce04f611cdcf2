"""uv in pip's place: only where pip would install the same, and pip where uv fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.every import every
from toolchain.checkout import Checkout
from toolchain.machine import pip, uv

UV = "uv==0.13.8 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
LOCK = f"urllib3==2.5.0 \\\n    --hash=sha256:cc\n{UV}werkzeug==3.1.0 \\\n    --hash=sha256:dd\n"


@every(
    "lines, file",
    [
        ([], ""),
        (["global.cert='/etc/ssl/company.pem'", ":env:.disable-pip-version-check='1'"], "/etc/ssl/company.pem"),
        (["install.cert='/i'", ":env:.cert='/e'", "global.cert='/g'"], "/e"),
        (["install.cert='/i'", "global.cert='/g'"], "/i"),
        (["""global.cert="/it's/here" """.strip()], "/it's/here"),
        (["download.index-url='https://other'", "list.format='json'", "download.cert='/d'"], ""),
        ([":env:.config-file='/c'", "install.retries='1'", ":env:.default-timeout='180'"], ""),
    ],
)
def test_pip_without_sources_of_its_own_leaves_it_to_uv(lines: list[str], file: str) -> None:
    assert uv.options(lines) == {"cert": [file] if file else [], "find-links": []}


@every(
    "line, folders",
    [
        (":env:.find-links='/opt/wheels'", ["/opt/wheels"]),
        (r"global.find-links='\n/opt/wheels\nhttps://company/wheels'", ["/opt/wheels", "https://company/wheels"]),
        ("download.find-links='/opt/wheels'", []),
    ],
)
def test_folders_of_packages_are_told_to_uv(line: str, folders: list[str]) -> None:
    assert uv.options(["global.cert='/g'", line]) == {"cert": ["/g"], "find-links": folders}


@every(
    "line",
    [
        "global.index-url='https://company/simple'",
        "install.extra-index-url='https://company/simple'",
        ":env:.no-index='1'",
        "global.trusted-host='company'",
        "global.proxy='http://proxy:3128'",
        "global.client-cert='/c.pem'",
        "install.user='true'",
        "install.only-binary=':all:'",
        "a line of another form",
    ],
)
def test_pip_told_what_uv_is_not_installs_itself(line: str) -> None:
    assert uv.options(["global.cert='/g'", line]) is None


class Environment:
    """An environment of stand-ins: `python -m pip config list`, uv, and pip's installations, which are noted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkout = Checkout(folder)
        self.checkout.lock.write_text(LOCK)
        self.installed: list[str] = []
        self.python = folder / "bin/python"
        self.python.parent.mkdir()
        self.write("python", "echo \"global.cert='/company.pem'\"")
        monkeypatch.setattr(pip, "install", lambda _python, lock, _log: self.installed.append(lock.read_text()))

    def write(self, name: str, script: str) -> None:
        """Write a program of the environment."""
        program = self.python.with_name(name)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def install(self) -> list[str]:
        """Install, and return the locks that pip got."""
        uv.install(self.checkout, self.python)
        return self.installed


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    return Environment(tmp_path, monkeypatch)


def test_uv_installs_all_after_pip_has_installed_uv(environment: Environment) -> None:
    log = environment.checkout.root / "log"
    environment.write(
        "uv", f'echo "$SSL_CERT_FILE ${{UV_INDEX_URL-}} $*" > {log}; mkdir -p {log.parent}/.slipway/cache/uv'
    )
    assert environment.install() == [UV]
    words = log.read_text().split()
    assert words[:3] == ["/company.pem", "pip", "install"]
    assert {"--require-hashes", "--no-deps", "--no-config"} <= {*words}
    assert words[-2:] == ["--requirements", str(environment.checkout.lock)]
    assert not (environment.checkout.cache / "uv").exists()


def test_user_settings_of_uv_do_not_count(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "https://elsewhere")
    environment.write("uv", '[ -z "${UV_INDEX_URL-}" ]')
    assert environment.install() == [UV]


def test_uv_gets_the_folders_of_pip(environment: Environment) -> None:
    environment.write("python", "echo \"global.find-links='/opt/wheels'\"")
    environment.write("uv", 'case "$*" in *" --find-links=/opt/wheels") ;; *) exit 2 ;; esac')
    assert environment.install() == [UV]


def test_pip_installs_all_where_uv_fails(environment: Environment) -> None:
    environment.write("uv", "echo no route >&2; exit 2")
    assert environment.install() == [UV, LOCK]
    assert (environment.checkout.logs / "uv.log").read_text() == "no route\n"


def test_pip_with_another_index_installs_all(environment: Environment) -> None:
    environment.write("python", "echo \"global.index-url='https://company/simple'\"")
    environment.write("uv", "exit 0")
    assert environment.install() == [LOCK]


def test_lock_without_uv_is_installed_by_pip(environment: Environment) -> None:
    environment.checkout.lock.write_text(LOCK.replace(UV, ""))
    assert environment.install() == [LOCK.replace(UV, "")]
