"""The Python environment: whole or not there, and never another than the lock asks for."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from containers.child_environment import child_environment
from tests.toolchain.clone import ROOT, Clone
from toolchain.checkout import Checkout
from toolchain.machine import apt, pip, uv
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import python_env


def _pin(package: str) -> str:
    """Return what requirements.lock says of one package without dependencies, hashes and all."""
    match = re.search(rf"^{package}==.*?(?=^\w)", (ROOT / "requirements.lock").read_text(), re.MULTILINE | re.DOTALL)
    assert match
    return match[0]


def _lock(clone: Clone, package: str) -> None:
    clone.checkout.lock.write_text(_pin("uv") + _pin(package))


@pytest.fixture
def small(clone: Clone) -> Clone:
    """A clone whose lock lists one small package beside uv, which installs the command."""
    _lock(clone, "iniconfig")
    return clone


def _installed(clone: Clone) -> set[str]:
    """Return what an environment has beside pip, and uv and the command, which every one has."""
    names = {folder.name.partition("-")[0] for folder in clone.checkout.venv.glob("lib/*/site-packages/*.dist-info")}
    return names - {"pip", "slipway", "uv"}


def _installer(clone: Clone) -> str:
    """Return what installed the small package."""
    (record,) = clone.checkout.venv.glob("lib/*/site-packages/iniconfig-*.dist-info/INSTALLER")
    return record.read_text().strip()


def _expected_installer(clone: Clone) -> str:
    """Return what is to install it: pip where this machine's pip has an index of its own, or the like."""
    words = [str(clone.checkout.venv / "bin" / "python"), "-m", "pip", "config", "list"]
    done = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    return "pip" if uv.options(done.stdout.splitlines()) is None else "uv"


def test_command_starts_in_a_folder_whose_name_has_a_space(small: Clone) -> None:
    small.root = small.root.rename(small.root.with_name("it's a small one"))
    small.get("python_env")
    program = small.checkout.venv / "bin" / "slipway"
    code = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run([program, "--version"], env={"PYTHONPATH": code}, capture_output=True, text=True, check=False)
    assert (done.stdout.split()[:1], done.stderr) == (["slipway"], "")


def test_killed_installation_is_repeated_and_then_kept(small: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    process = small.start("python_env")
    until = time.monotonic() + 20
    while not (small.checkout.venv / "bin" / "python").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert python_env.find(small.checkout) is None
    part = small.get("python_env")
    assert part["path"] == [str(small.checkout.venv / "bin")]
    assert _installed(small) == {"iniconfig"}
    assert _installer(small) == _expected_installer(small)
    marker = small.checkout.venv / "marker"
    marker.touch()
    assert small.get("python_env") == part
    assert marker.exists()

    _lock(small, "pluggy")
    assert python_env.find(small.checkout) is None, "another lock asks for another environment"
    _lock(small, "iniconfig")
    assert python_env.find(small.checkout) is not None
    moved = small.root.rename(small.root.with_name("moved"))
    assert python_env.find(Checkout(moved)) is None, "the scripts of an environment hold its path"
    moved.rename(small.root)
    assert python_env.find(small.checkout) is not None
    with monkeypatch.context() as changed:
        changed.setattr(sys, "version_info", (3, 99, 0))
        assert python_env.find(small.checkout) is None, "another Python reads another folder of an environment"


def test_wrong_hash_is_one_line_and_leaves_no_environment(small: Clone) -> None:
    small.checkout.lock.write_text(re.sub(r"sha256:\w{4}", "sha256:0000", _pin("pluggy")))
    error = small.refused("python_env")
    assert re.match(r"slipway: `\S+python -m pip install .*` failed \(1\): .*; all output is in .*/logs/pip.log", error)
    assert "DO NOT MATCH THE HASHES" in (small.checkout.logs / "pip.log").read_text()
    assert python_env.find(small.checkout) is None
    _lock(small, "iniconfig")
    small.get("python_env")
    assert _installed(small) == {"iniconfig"}


def test_installation_ignores_users_pip_targets(small: Clone, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[install]\nuser = true\n")
    names = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_CONSTRAINT", "PIP_REQUIREMENT")
    small.env |= {name: str(tmp_path / "elsewhere") for name in names}
    small.env |= {"PIP_USER": "1", "PIP_DRY_RUN": "1", "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    small.get("python_env")
    assert _installed(small) == {"iniconfig"}
    assert _installer(small) == "pip"
    assert not (tmp_path / "elsewhere").exists()


def test_installation_uses_users_index(small: Clone) -> None:
    small.env |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    small.refused("python_env")
    assert "Looking in indexes: http://127.0.0.1:9/simple\n" in (small.checkout.logs / "pip.log").read_text()


def test_missing_lock_is_one_line(clone: Clone) -> None:
    clone.checkout.lock.unlink()
    assert clone.refused("python_env").startswith(f"slipway: {clone.checkout.lock} is missing: restore it")


def test_python_without_venv_names_package_to_install(small: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(apt, "is_root", lambda: False)
    with pytest.raises(
        ToolchainError, match=r"^python3\.\d+-venv not found: run `apt-get install python3\.\d+-venv` as root$"
    ):
        python_env.get(small.checkout)


def test_index_that_is_not_reached_is_no_missing_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "1", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "lock").write_text(_pin("iniconfig"))
    with pytest.raises(ToolchainError, match=r"^pip does not reach the index: .*Connection refused.* by PIP_INDEX_URL"):
        pip.install(Path(sys.executable), tmp_path / "lock", tmp_path / "log", f"--target={tmp_path / 'there'}")


@pytest.mark.parametrize(("program", "read"), [("pip", "REQUESTS_CA_BUNDLE"), ("uv.lock", "SSL_CERT_FILE")])
def test_certificate_is_named_as_the_program_reads_it(monkeypatch: pytest.MonkeyPatch, program: str, read: str) -> None:
    names = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert read not in child_environment(program)
    for name in reversed(names):
        monkeypatch.setenv(name, f"/{name}")
        assert child_environment(program)[read] == f"/{name}"
