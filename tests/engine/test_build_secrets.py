"""Builds that fetch from a host which asks for a login, and where the login may not be."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from docker import DockerClient

from stacks.config.stack_file import ROOT
from tests.engine.project import Project
from tests.fakes.closed_host import ClosedHost
from tests.fakes.package_index import wheel
from tests.fakes.upstreams.upstreams import gateway, git
from tests.images.conftest import archives  # noqa: F401 - a fixture
from tests.images.engine import base_image

MOUNT = "--mount=type=secret,id=netrc-{},target=/dev/netrc,mode=0444"
DOCKERFILE = f"""ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
RUN --mount=type=bind,source=common/layers,target=/srv --mount=type=tmpfs,target=/tmp \\
    ["/srv/apt-install", "ca-certificates", "git", "python3-pip"]
ARG CA_CERTIFICATE=""
RUN --mount=type=bind,source=common/layers,target=/srv ["/srv/trust-ca"]
ARG WORD
ARG APT_MIRROR=""
RUN --mount=type=bind,source=common/layers,target=/srv --mount=type=tmpfs,target=/tmp {MOUNT.format("downloads")} \\
    ["/srv/with-apt", "true"]
ARG PYTHON_INDEX_URL=""
RUN --mount=type=bind,source=common/layers,target=/srv --mount=type=tmpfs,target=/tmp {MOUNT.format("index")} \\
    ["/srv/sealed", "sh", "-euc", \
"pip download --cert /etc/ssl/certs/ca-certificates.crt $(/srv/pip-index) --dest /out hello"]
ARG GIT_MIRROR=https://github.com
RUN --mount=type=bind,source=common/build,target=/srv --mount=type=tmpfs,target=/tmp {MOUNT.format("git")} \\
    ["/srv/fetch-source", "acme/source", "v1", "/src"]
"""
LOGIN = {"username": "ci", "variable": "INDEX_PASSWORD"}


@pytest.fixture
def host(tmp_path: Path, archives: dict[str, str]) -> Iterator[ClosedHost]:  # noqa: F811
    """A closed host with one wheel and one repository, whose password is a canary."""
    served = ClosedHost(tmp_path, gateway(), archives, f"canary{uuid.uuid4().hex}")
    files = tmp_path / "files"
    page = wheel(files, "hello", "1.0").name
    (files / "simple/hello").mkdir(parents=True)
    (files / "simple/hello/index.html").write_text(f'<a href="/{page}">{page}</a>')
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q")
    (work / "code.py").write_text("print()\n")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "v1")
    git(work, "tag", "v1")
    git(tmp_path, "clone", "-q", "--bare", str(work), str(files / "git/acme/source"))
    yield served
    served.server.close()


def test_official_provider_is_refused_before_a_build(project: Project) -> None:
    project.configure(
        buildSecrets={"pypi.example.com": LOGIN}, mirrors={"pythonIndex": "https://pypi.example.com/simple"}
    )
    for run in (project.preview, project.up):
        done = run(check=False, SLIPWAY_DOCKER_PROVIDER="official")
        assert done.returncode != 0
        assert "slipway:buildSecrets: the official docker provider cannot give a build a secret" in done.output
        assert "Traceback" not in done.output
    assert not project.published("link0")


@pytest.mark.skipif(os.environ.get("SLIPWAY_DOCKER_PROVIDER") == "official", reason="it takes no build secrets")
def test_missing_variable_is_refused_before_a_build(project: Project) -> None:
    project.configure(
        buildSecrets={"pypi.example.com": LOGIN}, mirrors={"pythonIndex": "https://pypi.example.com/simple"}
    )
    project.preview(INDEX_PASSWORD="")
    done = project.up(check=False, INDEX_PASSWORD="")
    assert "slipway:buildSecrets: pypi.example.com: $INDEX_PASSWORD is not set" in done.output
    assert "Traceback" not in done.output
    assert not project.published("link0")


@pytest.mark.skipif(os.environ.get("SLIPWAY_DOCKER_PROVIDER") == "official", reason="it takes no build secrets")
def test_step_of_one_source_reads_no_other_login(project: Project) -> None:
    """What a package of apt does as root at its installation, or a hook of git: it reads what the step has."""
    sources = ("downloads", "git", "index", "downloads-index", "git-index")
    steps = "".join(f"RUN {MOUNT.format(each)} cat /dev/netrc > /{each}\n" for each in sources)
    project.write("dockerfiles/link0/Dockerfile", f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nARG WORD\n{steps}")
    hosts = {"downloads": "apt.test", "git": "git.test", "index": "pypi.test"}
    project.configure(
        base=base_image(),
        publish=False,
        buildSecrets=dict.fromkeys(hosts.values(), LOGIN),
        mirrors={
            "apt": "https://apt.test",
            "git": "https://git.test",
            "pythonIndex": "https://pypi.test/simple",
            "images": json.loads(os.environ.get("SLIPWAY_MIRRORS", "{}")).get("images", {}),
        },
    )
    project.up(INDEX_PASSWORD="canary")
    tag = project.outputs()["images"]["link0"]["tag"]
    image = DockerClient.from_env().images.get(f"{project.registry}/{project.path}/link0:{tag}")
    for each in sources:
        read = DockerClient.from_env().containers.run(image, ["cat", f"/{each}"], remove=True).decode()
        assert {line.split()[1] for line in read.splitlines()} == {hosts[source] for source in each.split("-")}
    image.remove(force=True)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("SLIPWAY_DOCKER_PROVIDER") == "official", reason="it takes no build secrets")
def test_apt_pip_and_git_log_in_and_leave_no_trace(project: Project, host: ClosedHost) -> None:
    shutil.copytree(ROOT / "dockerfiles/common", project.root / "dockerfiles/common", symlinks=True)
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE)
    project.write("dockerfiles/link0/Dockerfile.dockerignore", "*\n!link0\n!common\n")
    mirrors = {
        "apt": host.url,
        "pythonIndex": f"{host.url}/simple",
        "git": f"{host.url}/git",
        "caCertificate": host.root,
        "images": json.loads(os.environ.get("SLIPWAY_MIRRORS", "{}")).get("images", {}),
    }
    configure = partial(project.configure, base=base_image(), publish=False, mirrors=mirrors)
    address, word = gateway(), uuid.uuid4().hex
    configure(word=word)
    for part in ({"debian", "debian-security"}, {"simple"}, {"git"}):
        host.closed = part
        refusal = project.up(check=False)
        assert refusal.returncode != 0
        assert f"{address} asks for a login: give slipway:buildSecrets its username" in refusal.output, refusal.output

    host.closed = {"debian", "debian-security", "simple", "git"}
    configure(word=f"{word}2", buildSecrets={address: LOGIN})
    runs = [project.up(INDEX_PASSWORD=host.password)]
    assert {path.strip("/").partition("/")[0] for path in host.admitted} >= {"debian", "simple", "git"}
    tag = project.outputs()["images"]["link0"]["tag"]
    runs += [
        project.preview("--diff", "--expect-no-changes"),
        project.refresh(),
        project.preview("--expect-no-changes"),
    ]
    assert re.search(r"Resources:\n\s+\d+ unchanged\n", project.up(INDEX_PASSWORD="another").output)

    engine = DockerClient.from_env()
    image = engine.images.get(f"{project.registry}/{project.path}/link0:{tag}")
    files = b"".join(path.read_bytes() for path in project.root.rglob("*") if path.is_file())
    written = [b"".join(image.save()), json.dumps(image.history()).encode(), json.dumps(image.attrs).encode(), files]
    assert b"code.py" in written[0]
    assert all(host.password.encode() not in content for content in written)
    assert all(host.password not in run.output for run in runs)
    engine.images.remove(str(image.id), force=True)
