"""The bootstrapped base image, in a real engine and a real registry."""

import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from containers.engine.engine_platforms import PLATFORMS
from tests.fakes.loopback import serving
from tests.helpers.needs import needs
from tests.toolchain.clone import Clone, make
from toolchain.machine import apt
from toolchain.parts import base_image, docker_engine, docker_registry, emulation
from toolchain.parts.part import Part, remember


@pytest.mark.slow
def test_base_image_is_the_same_on_two_machines(clones: tuple[Clone, Clone], monkeypatch: pytest.MonkeyPatch) -> None:
    needs("root")
    monkeypatch.setattr(base_image, "_pull", lambda _environment: "not tried")
    digests = set()
    for clone in clones:
        monkeypatch.setenv("XDG_CACHE_HOME", str(clone.programs.parent / "cache"))
        host = docker_engine.get(clone.checkout).env["DOCKER_HOST"]
        address = docker_registry.get(clone.checkout).env["SLIPWAY_REGISTRY"]
        part = base_image.get(clone.checkout)
        assert part.used == f"{address}/docker.io/library/debian:bookworm-slim"
        assert base_image.find(clone.checkout) == part
        words = ["docker", "-H", host, "image", "inspect", "--format", "{{index .RepoDigests 0}}", part.used]
        reference = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        digests.add(reference.partition("@")[2])
        words = ["docker", "-H", host, "run", "--rm", "--network", "none", part.used, "cat", "/etc/debian_version"]
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("12.")
        assert not list((clone.checkout.cache).iterdir())
    assert len(digests) == 1


@pytest.mark.slow
def test_base_image_of_another_processor_joins_the_tag(
    clones: tuple[Clone, Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("root")
    monkeypatch.setattr(base_image, "_pull", lambda _environment: "not tried")
    checkout = clones[0].checkout
    host = docker_engine.get(checkout).env["DOCKER_HOST"]
    docker_registry.get(checkout)
    own = f"linux/{apt.machine()}"
    (other,) = {*PLATFORMS} - {own}
    used = base_image.get(checkout).used
    assert base_image.find_for(checkout, other) is None
    (digest,) = base_image._entries(checkout, used).values()
    emulation.get(checkout, other)
    part = base_image.get_for(checkout, other)
    assert base_image.find_for(checkout, other) == Part(part.name, used, part.version.partition(" under")[0])
    assert base_image._entries(checkout, used).keys() == {own, other}
    assert base_image._entries(checkout, used)[own] == digest
    for platform, machine in (("linux/amd64", "x86_64"), ("linux/arm64", "aarch64")):
        words = [
            "docker",
            "-H",
            host,
            "run",
            "--rm",
            "--pull=always",
            "--network",
            "none",
            "--platform",
            platform,
            used,
        ]
        assert (
            subprocess.run([*words, "uname", "-m"], capture_output=True, text=True, check=True).stdout == f"{machine}\n"
        )


def test_mirrored_base_image_is_not_bootstrapped(clone: Clone) -> None:
    clone.env["SLIPWAY_MIRRORS"] = '{"images": {"docker.io": "mirror.invalid/hub"}}'
    part = clone.get("base_image")
    assert (part["used"], part["env"]) == ("debian:bookworm-slim by SLIPWAY_MIRRORS", {})


def test_bootstrapped_base_image_is_shared_by_checkouts(tmp_path: Path) -> None:
    (tmp_path / "v2").mkdir()
    with serving(partial(SimpleHTTPRequestHandler, directory=tmp_path)) as address:
        for name, setting in (("a", ""), ("b", ""), ("c", "APT_CONFIG")):
            clone = make(tmp_path / name)
            clone.program("mmdebstrap", f'for last; do :; done; echo {name} >> {tmp_path}/runs; echo root > "$last"')
            pushed = f"sha256:{'1' * 64}"
            clone.program("docker", f'case "$1" in load) ;; push) echo {pushed} ;; *) echo none >&2; exit 1 ;; esac')
            clone.env |= {docker_registry.VARIABLE: address, "XDG_CACHE_HOME": str(tmp_path / "cache")}
            clone.env |= {setting: "/dev/null"} if setting else {}
            assert clone.get("base_image")["version"] == "Debian bookworm, bootstrapped"
    assert (tmp_path / "runs").read_text() == "a\nc\n"  # the third one has other settings of apt


def test_base_image_gone_from_registry_is_missing(clones: tuple[Clone, Clone]) -> None:
    needs("root")
    clone = clones[0].checkout
    docker_engine.get(clone)
    address = docker_registry.get(clone).env["SLIPWAY_REGISTRY"]
    used = f"{address}/docker.io/library/debian:bookworm-slim"
    remember(clone, Part(base_image.NAME, used, "y", env={"SLIPWAY_MIRRORS": "{}"}))
    assert base_image.find(clone) is None


def test_registry_that_takes_no_login_is_refused_before_work(clone: Clone, tmp_path: Path) -> None:
    manifest = 'case "$1" in manifest) echo "no such manifest" >&2;; *)'  # as Docker says of a wrong password
    clone.program("docker", f'{manifest} echo "unauthorized: authentication required" >&2;; esac; exit 1')
    (tmp_path / "v2").mkdir()
    with serving(partial(SimpleHTTPRequestHandler, directory=tmp_path)) as address:
        clone.env[docker_registry.VARIABLE] = address
        assert clone.refused("base_image") == (
            f"slipway: {docker_registry.VARIABLE}={address}: the registry wants a login, and Docker has none that it "
            f"takes: `docker login {address}` (unauthorized: authentication required)"
        )
