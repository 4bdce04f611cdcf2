"""Python packages for the lock: what uv resolves on an index of this machine, and what no hash can be had of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.locking import lock_file, python_packages
from cli.locking.python_packages import NotLockable
from containers.child_environment import child_environment
from containers.errors import SlipwayError
from stacks import graph
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.spec import Packages
from tests.fakes.package_index import Index
from tests.helpers.every import every
from tests.helpers.needs import mounting

WHEEL = "hello-1.0-py3-none-any.whl"
PACKAGES = Packages(requirements=("hello",), pythons=("3.12",))


class OneProject(Index):
    """An index that has one project, ``hello``, with this page; or that answers with this status."""

    page = ""
    status = 200
    requires = ""

    def answer(self, path: str, archives: dict[str, str]) -> tuple[int, bytes]:  # noqa: ARG002
        if path.endswith(f"/{WHEEL}.metadata"):
            return 200, f"Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n{self.requires}".encode()
        return self.status, f"<!doctype html><title>hello</title>\n{self.page}".encode()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneProject]:
    cache = {"UV_HTTP_RETRIES": "0", "UV_CACHE_DIR": str(tmp_path / "cache")}
    monkeypatch.setattr(python_packages, "child_environment", lambda name: child_environment(name, **cache))
    served = OneProject(tmp_path)
    yield served
    served.close()


def files(index: Index, sdists: tuple[str, ...] = ()) -> dict[str, str]:
    packages = PACKAGES.model_copy(update={"sdists": sdists})
    return python_packages.files(packages, "linux/amd64", MirrorsConfig.model_validate({"pythonIndex": index.url}))


def test_wheel_is_locked_with_the_sha256_of_its_page(index: OneProject) -> None:
    index.page = f'<a href="/files/{WHEEL}#sha256={"0" * 64}" data-core-metadata="true">{WHEEL}</a>'
    assert files(index) == {f"{index.address}/files/{WHEEL}": "0" * 64}


def test_page_without_files_is_no_lack_of_versions(index: OneProject) -> None:
    """A proxy answers each request with a page to sign in."""
    index.page = "<form action=/login>Please sign in</form>"
    with pytest.raises(NotLockable, match=f"look at {index.url}hello/, which lists no file: a proxy may"):
        files(index)


@pytest.mark.parametrize("variable", ["", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_index_that_the_machine_trusts_is_locked(tmp_path: Path, variable: str) -> None:
    """As behind a company's proxy, whose certificate is in the machine's store, here in a mount namespace, or named."""
    pair, store = tmp_path / "pair.pem", Path("/etc/ssl/certs/ca-certificates.crt")
    name = ["-subj", "/CN=company", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *name, "-keyout", str(pair), "-out", "-"]
    certificate = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    pair.write_text(pair.read_text() + certificate)
    served = OneProject(tmp_path, certificate=pair)
    served.page = f'<a href="/files/{WHEEL}#sha256={"0" * 64}" data-core-metadata="true">{WHEEL}</a>'
    lock = (
        "import json, sys; from cli.locking import python_packages; from stacks.spec import Packages;"
        "from stacks.config.fetching.mirrors import MirrorsConfig as Mirrors;"
        "packages = Packages(requirements=('hello',), pythons=('3.12',));"
        "mirrors = Mirrors.model_validate({'pythonIndex': sys.argv[1]});"
        "print(json.dumps(python_packages.files(packages, 'linux/amd64', mirrors)))"
    )
    trusting = [] if variable else [*mounting(), "sh", "-c", f'mount --bind "$0" {store} && exec "$@"', str(pair)]
    environment = {key: value for key, value in os.environ.items() if "CERT" not in key and "CA_BUNDLE" not in key}
    done = subprocess.run(
        [*trusting, sys.executable, "-c", lock, served.url],
        env={**environment, **({variable: str(pair)} if variable else {}), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    served.close()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {f"{served.address}/files/{WHEEL}": "0" * 64}


def test_package_without_a_wheel_cannot_be_locked(index: OneProject) -> None:
    index.page = f'<a href="/files/hello-1.0.tar.gz#sha256={"0" * 64}">hello-1.0.tar.gz</a>'
    with pytest.raises(
        NotLockable, match=r"^hello: Python 3.12 on linux/amd64: the index has no wheel of hello for it: Because "
    ):
        files(index)


def test_wheels_that_require_what_is_not_there_are_the_cause(index: OneProject) -> None:
    """Another version without a wheel is not."""
    index.requires = "Requires-Dist: gone>=2\n"
    index.page = (
        f'<a href="/files/{WHEEL}#sha256={"0" * 64}" data-core-metadata="true">{WHEEL}</a>'
        f'<a href="/files/hello-0.9.tar.gz#sha256={"0" * 64}">hello-0.9.tar.gz</a>'
    )
    with pytest.raises(NotLockable, match=r"has no usable wheels.* depends on gone") as error:
        files(index)
    assert "the index has no wheel of" not in str(error.value)


def test_source_distribution_named_is_locked_and_not_run(index: OneProject) -> None:
    """The stand-in has no such file: uv, which is told that it requires nothing, does not fetch it."""
    index.page = f'<a href="/files/hello-1.0.tar.gz#sha256={"0" * 64}">hello-1.0.tar.gz</a>'
    assert files(index, sdists=("hello",)) == {f"{index.address}/files/hello-1.0.tar.gz": "0" * 64}
    assert not [request for request in index.requests if request.endswith(".tar.gz")]


def test_source_distribution_of_another_is_not_locked(index: OneProject) -> None:
    index.page = f'<a href="/files/hello-1.0.tar.gz#sha256={"0" * 64}">hello-1.0.tar.gz</a>'
    with pytest.raises(NotLockable, match="^hello: Python 3.12 on linux/amd64: the index has no wheel of hello"):
        files(index, sdists=("other",))


@pytest.mark.parametrize(
    ("start", "shown"),
    [("http://me:hunter2@HOST/files", "http://***@HOST/files"), ("/files/it's", "http://HOST/files/it's")],
)
def test_wheel_at_an_address_of_no_lock_is_not_locked(index: OneProject, start: str, shown: str) -> None:
    host = index.address.partition("//")[2]
    href = f"{start.replace('HOST', host)}/{WHEEL}"
    index.page = f'<a href="{href}#sha256={"0" * 64}" data-core-metadata="true">{WHEEL}</a>'
    with pytest.raises(NotLockable) as caught:
        files(index)
    assert "hunter2" not in str(caught.value)
    assert f"the index names '{shown.replace('HOST', host)}/{WHEEL}', but" in str(caught.value)


def test_wheel_without_sha256_cannot_be_locked(index: OneProject) -> None:
    index.page = f'<a href="/files/{WHEEL}#md5={"0" * 32}" data-core-metadata="true">{WHEEL}</a>'
    with pytest.raises(NotLockable, match=r"^hello: hello 1.0: the index has no wheel of it with a SHA-256; take"):
        files(index)


def test_package_that_no_index_has_is_named(index: OneProject) -> None:
    index.status = 404
    onto = PACKAGES.model_copy(update={"requirements": ()})
    packages = PACKAGES.model_copy(update={"onto": onto})
    mirrors = MirrorsConfig.model_validate({"pythonIndex": index.url})
    with pytest.raises(NotLockable) as caught:
        python_packages.files(packages, "linux/amd64", mirrors)
    line = str(caught.value)
    assert line.startswith(
        f"hello: Python 3.12 on linux/amd64: uv finds no packages on {index.url.rstrip('/')}: Because "
    )
    assert line.endswith("To mend it, correct hello, or let slipway:mirrors.pythonIndex name an index that has it")
    assert "\n" not in line


def test_requirements_without_a_solution_say_what_to_do(index: OneProject) -> None:
    index.page = f'<a href="/files/{WHEEL}#sha256={"0" * 64}" data-core-metadata="true">{WHEEL}</a>'
    onto = PACKAGES.model_copy(update={"requirements": ()})
    packages = PACKAGES.model_copy(update={"requirements": ("hello>=2",), "onto": onto})
    mirrors = MirrorsConfig.model_validate({"pythonIndex": index.url})
    with pytest.raises(NotLockable) as caught:
        python_packages.files(packages, "linux/amd64", mirrors)
    line = str(caught.value)
    assert line.startswith("hello>=2: Python 3.12 on linux/amd64: nothing that the image has is replaced, and what is ")
    assert "asked for does not go with it or with itself: Because " in line
    assert line.endswith("Ask for other versions, or leave one out")


@pytest.mark.parametrize(
    ("status", "named"),
    [
        (401, r"the index \S+ answers 401 Unauthorized: Because hello was not found in the package registry"),
        (403, r"the index \S+ answers 403 Forbidden: Because hello was not found in the package registry"),
        (404, "uv finds no packages on http"),
    ],
)
def test_index_that_refuses_cannot_be_locked(index: OneProject, status: int, named: str) -> None:
    index.status = status
    with pytest.raises(NotLockable, match=f"^hello: Python 3.12 on linux/amd64: {named}"):
        files(index)


def test_index_that_fails_is_an_error_of_the_lock(index: OneProject) -> None:
    index.status = 500
    with pytest.raises(SlipwayError, match=r"^hello: .* error: ") as caught:
        files(index)
    assert not isinstance(caught.value, NotLockable)
    assert str(caught.value).endswith("reached from here, or let slipway:mirrors.pythonIndex name another")


def test_index_that_does_not_respond_is_an_error_of_the_lock(index: OneProject) -> None:
    index.close()
    with pytest.raises(SlipwayError, match=r"^hello: .* error: ") as caught:
        files(index)
    assert not isinstance(caught.value, NotLockable)
    assert str(caught.value).endswith("reached from here, or let slipway:mirrors.pythonIndex name another")


def test_index_of_torch_that_does_not_respond_is_named(index: OneProject, tmp_path: Path) -> None:
    closed = OneProject(tmp_path)
    closed.close()
    mirrors = MirrorsConfig.model_validate({"pythonIndex": index.url, "torchIndex": closed.url})
    with pytest.raises(SlipwayError, match=f": uv finds no packages on {closed.url.rstrip('/')}: error: ") as caught:
        python_packages.files(PACKAGES, "linux/amd64", mirrors)
    assert str(caught.value).endswith("reached from here, or let slipway:mirrors.torchIndex name another")


def test_interrupted_lock_ends_what_waits_for_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal is the command's alone: it is no Ctrl-C of a terminal, which uv gets too."""
    slow = tmp_path / "uv"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(slow))

    def interrupt() -> None:
        while not python_packages._programs:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        lock_file._packages([graph.unlocked({"flavor": "local"}, "stack t")], {}, {})
    assert not python_packages._programs


def test_wheel_that_is_cut_off_is_an_error_of_the_lock(index: OneProject) -> None:
    """Without its metadata, uv reads these in the wheel, of which it gets what is no archive."""
    index.page = f'<a href="/files/{WHEEL}#sha256={"0" * 64}">{WHEEL}</a>'
    with pytest.raises(
        SlipwayError, match="^hello: .* the file of hello on http.* is broken, or was cut off: "
    ) as caught:
        files(index)
    assert not isinstance(caught.value, NotLockable)
    assert "; try again, or let slipway:mirrors.pythonIndex name another" in str(caught.value)


def test_index_of_an_unknown_certificate_says_what_to_trust(tmp_path: Path) -> None:
    pair = tmp_path / "pair.pem"
    name = ["-subj", "/CN=company", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *name, "-keyout", str(pair), "-out", "-"]
    certificate = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    pair.write_text(pair.read_text() + certificate)
    served = OneProject(tmp_path, certificate=pair)
    with pytest.raises(
        SlipwayError,
        match=r"certificate.*; let this machine trust its certificate, or name it in SSL_CERT_FILE, or let slipway:mir",
    ):
        files(served)
    served.close()


@every(
    "platform, glibc, target",
    [
        ("linux/amd64", "2.28", "x86_64-manylinux_2_28"),
        ("linux/arm64", "2.28", "aarch64-manylinux_2_28"),
        ("linux/amd64", "2.27", "x86_64-manylinux_2_17"),
        ("linux/amd64", "2.30", "x86_64-manylinux_2_28"),
        ("linux/amd64", "2.31", "x86_64-manylinux_2_31"),
        ("linux/amd64", "2.99", "x86_64-manylinux_2_40"),
    ],
)
def test_target_has_the_newest_library_that_is_no_newer(platform: str, glibc: str, target: str) -> None:
    assert python_packages._target(platform, glibc) == target
