"""The universal images on Rocky Linux and UBI, whose packages are dnf's: built whole, and refused what dnf must refuse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.upstreams.server import Server
from tests.fakes.upstreams.upstreams import World, gateway
from tests.images import chain
from tests.images.engine import DOCKERFILES, Image, docker
from tests.images.universal.conftest import Built
from tests.images.universal.test_universal import CPU, STACK, pip

pytestmark = pytest.mark.slow

ALICE = {"uid": 1234, "gid": 100, "tz": "Asia/Seoul", "dnf": ["less", "sudo"], "conda": ["tree=2.1.1"]}

Mirrors = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def mirrors(world: World) -> Mirrors:
    """The mirrors for builds on a distribution, whose image is made the first time."""
    return cache(world.with_dnf)


def whole(built: Built, distro: str, more: dict[str, Any], found: dict[str, Any]) -> chain.Chain:
    """Return Alice's chain on a distribution, built the first time."""
    return built(STACK, **more, distro=distro, mirrors=found, train=[ALICE])


@pytest.mark.parametrize(
    ("distro", "more"),
    [("rockylinux9", CPU), ("ubi9", CPU), ("rockylinux8", CPU), ("rockylinux8", {})],
    ids=["rocky", "ubi", "rocky-8", "rocky-cuda"],
)
def test_chain_on_dnf_distribution_builds(built: Built, mirrors: Mirrors, distro: str, more: dict[str, Any]) -> None:
    made = whole(built, distro, more, mirrors(distro))
    image, args = made.image("train"), made.planned["train"].args
    assert distro in args["BASE_IMAGE"] or distro.replace("rockylinux", "rockylinux:") in args["BASE_IMAGE"]
    have = pip(image)
    assert [have[name] for name in ("torch", "torchvision", "torchaudio", "torchtext")] == [
        args["TORCH_VERSION"],
        args["TORCHVISION_VERSION"],
        args["TORCHAUDIO_VERSION"],
        args["TORCHTEXT_VERSION"],
    ]
    cuda = image.run("python", "-c", "import torch; print(torch.version.cuda)").strip()
    assert cuda == ("None" if more else "11.3")
    assert image.run("id").strip() == "uid=1234(user) gid=100(users) groups=100(users),999(conda)"
    assert image.run("date", "+%Z").strip() == "KST"
    assert image.run("sudo", "-n", "id", "-u").strip() == "0"
    assert image.run("tree").strip() == "tree v2.1.1"
    # What a person asks for, what the wheels need, and nothing of what compiled them but what NVIDIA's image has.
    installed = set(image.run("rpm", "-qa", "--qf", "%{NAME}\\n").splitlines())
    assert {"ca-certificates", "less", "shadow-utils", "sudo", "tzdata"} <= installed
    assert not {"git", "libpng-devel", "make"} & installed
    assert ("gcc-c++" in installed) == ("libnccl" in installed) == (not more)
    left = image.run("find", "/var", "-name", "*.rpm", "-o", "-name", "*.solv", options=("--user=root",))
    assert left == ""


def test_refresh_installs_new_distribution_packages(built: Built, world: World, mirrors: Mirrors) -> None:
    """And for nothing of NVIDIA's, which has something newer too. The archive's address is the same every day."""
    asked: dict[str, Any] = {"distro": "rockylinux8", "train": [ALICE]}
    found = mirrors("rockylinux8")
    plain = whole(built, "rockylinux8", {}, found)
    archives = Path(urlsplit(found["downloads"]["https://dl.rockylinux.org"]).path).parts[1]
    today = world.cache / "today"
    downloads = {public: own.replace(f"/{archives}/", "/today/") for public, own in found["downloads"].items()}
    have = {name: made for name, made in plain.names.items() if name != "train"}

    def refreshed(date: str, archive: str) -> Image:
        today.unlink(missing_ok=True)
        today.symlink_to(archive)
        refresh = {"train": {"REFRESH": date}}
        mirrored = {**found, "downloads": downloads}
        return chain.built(STACK, world, have=have, by_hand=refresh, **asked, mirrors=mirrored).image("train")

    def versions(image: Image) -> list[str]:
        query = "rpm", "-q", "--qf", "%{VERSION}-%{RELEASE}\\n", "glibc", "cuda-cudart-11-3"
        return image.run(*query).splitlines()

    glibc, cudart = versions(plain.image("train"))
    assert glibc == "2.36-1"
    monday = refreshed("monday", archives)
    assert versions(monday) == [glibc, cudart]
    assert refreshed("monday", f"{archives}/later").id() == monday.id()
    tuesday = refreshed("tuesday", f"{archives}/later")
    assert versions(tuesday) == ["2.36-2", cudart]
    today.unlink()
    docker("rmi", "--force", monday.tag, tuesday.tag)


def test_mirror_with_own_root_certificate_serves_everything(
    built: Built, world: World, mirrors: Mirrors, tmp_path: Path
) -> None:
    """By dnf, curl, pip and micromamba, in the image of compilers and in one's own; what is in the latter trusts it too."""
    address = gateway()
    key, root, both = tmp_path / "key.pem", tmp_path / "root.pem", tmp_path / "both.pem"
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:{address}"
    subprocess.run([*request.split(), "-keyout", key, "-out", root], check=True, capture_output=True)
    both.write_text(key.read_text() + root.read_text())
    mirror = Server(world.cache, address, 0, both)
    asked: dict[str, Any] = {**CPU, "distro": "rockylinux9", "train": [ALICE]}
    found = mirrors("rockylinux9")
    sealed: dict[str, Any] = json.loads(json.dumps(found).replace(world.server.url, mirror.url))
    plain = whole(built, "rockylinux9", CPU, found)
    have = {name: made for name, made in plain.names.items() if name not in {"install", "train"}}
    behind = {**sealed, "caCertificate": root.read_text()}
    made = chain.built(STACK, world, have=have, **asked, mirrors=behind)
    page = mirror.url + "/"
    code = f"import urllib.request; print(urllib.request.urlopen('{page}').status)"
    assert made.image("train").run("python", "-c", code) == "200\n"
    for name in ("install", "train"):
        made.image(name).run("curl", "-fsS", page)
    assert "self-signed certificate" in plain.image("train").fails("curl", "-fsS", page)
    assert "CERTIFICATE_VERIFY_FAILED" in plain.image("train").fails("python", "-c", code)
    # dnf has no other way to trust it than the argument, and says so.
    given = {"DOWNLOADS_ROCKY": sealed["downloads"]["https://dl.rockylinux.org"]}
    told = on_rocky(found).fails("/srv/dnf-install", "less", options=mounted(given))
    assert "SSL peer certificate or SSH remote key was not OK for " + given["DOWNLOADS_ROCKY"] in told
    mirror.close()
    docker("rmi", "--force", *(made.names[name] for name in ("install", "train")))


def on_rocky(found: dict[str, Any]) -> Image:
    """Return the image of Rocky Linux 9 itself."""
    return Image(f"{found['images']['docker.io/rockylinux']}/rockylinux:9")


def mounted(environment: dict[str, str]) -> tuple[str, ...]:
    """Return the options of a container that has the layers' scripts, and some variables."""
    layers = DOCKERFILES / "common/layers"
    return (
        f"--volume={layers}:/srv:ro",
        "--tmpfs=/tmp",
        *(f"--env={key}={value}" for key, value in environment.items()),
    )


@pytest.mark.parametrize(
    ("package", "environment", "said"),
    [
        ("no-such-package", {}, "Unable to find a match: no-such-package"),
        ("unsigned", {}, "is not signed"),
        ("less", {"DOWNLOADS_ROCKY": "{rocky}/elsewhere"}, "Failed to download metadata for repo"),
        ("less", {"DOWNLOADS_ROCKY": "http://me:secret@host"}, "DOWNLOADS_ROCKY holds a user:password@"),
        ("less", {"DOWNLOADS_ROCKY": "mirror.example"}, "DOWNLOADS_ROCKY is 'mirror.example', which is no http://"),
    ],
)
def test_dnf_install_mistake_is_one_line(
    mirrors: Mirrors, package: str, environment: dict[str, str], said: str
) -> None:
    found = mirrors("rockylinux9")
    rocky = found["downloads"]["https://dl.rockylinux.org"]
    given = {"DOWNLOADS_ROCKY": rocky, **{name: value.format(rocky=rocky) for name, value in environment.items()}}
    told = on_rocky(found).fails("/srv/dnf-install", package, options=mounted(given))
    assert said in told
    assert "secret" not in told


def test_certificate_is_in_bundles_of_debian_and_red_hat(mirrors: Mirrors) -> None:
    name = ["-subj", "/CN=slipway-test", "-days", "1", "-nodes", "-keyout", "/dev/null"]
    made = subprocess.run(["openssl", "req", "-x509", *name], check=True, capture_output=True, text=True).stdout
    line = made.splitlines()[1]
    bundles = "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"
    script = f"/srv/trust-ca && grep -lF '{line}' {' '.join(bundles)}"
    image = on_rocky(mirrors("rockylinux9"))
    assert image.run("sh", "-c", script, options=mounted({"CA_CERTIFICATE": made})).split() == [*bundles]
    assert "not a PEM certificate" in image.fails("/srv/trust-ca", options=mounted({"CA_CERTIFICATE": "x"}))
