"""The universal images on Rocky Linux and UBI, whose package manager is dnf."""

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
    """A function that returns the mirrors for builds on a distribution; it makes the image once."""
    return cache(world.with_dnf)


def chain_of(built: Built, distro: str, more: dict[str, Any], mirrored: dict[str, Any]) -> chain.Chain:
    """Return Alice's chain on a distribution, built once."""
    return built(STACK, **more, distro=distro, mirrors=mirrored, train=[ALICE])


@pytest.mark.parametrize(
    ("distro", "more"),
    [("rockylinux9", CPU), ("ubi9", CPU), ("rockylinux8", CPU), ("rockylinux8", {})],
    ids=["rocky", "ubi", "rocky-8", "rocky-cuda"],
)
def test_chain_on_dnf_distribution_builds(built: Built, mirrors: Mirrors, distro: str, more: dict[str, Any]) -> None:
    images = chain_of(built, distro, more, mirrors(distro))
    image, args = images.image("train"), images.planned["train"].args
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
    # The user's packages and the wheels' requirements, and no compilers but those in NVIDIA's image.
    installed = set(image.run("rpm", "-qa", "--qf", "%{NAME}\\n").splitlines())
    assert {"ca-certificates", "less", "shadow-utils", "sudo", "tzdata"} <= installed
    assert not {"git", "libpng-devel", "make"} & installed
    assert ("gcc-c++" in installed) == ("libnccl" in installed) == (not more)
    leftovers = image.run("find", "/var", "-name", "*.rpm", "-o", "-name", "*.solv", options=("--user=root",))
    assert leftovers == ""


def test_refresh_installs_new_distribution_packages(built: Built, world: World, mirrors: Mirrors) -> None:
    """NVIDIA's newer packages are not installed. The archive's address is the same every day."""
    keys: dict[str, Any] = {"distro": "rockylinux8", "train": [ALICE]}
    mirrored = mirrors("rockylinux8")
    plain = chain_of(built, "rockylinux8", {}, mirrored)
    archives = Path(urlsplit(mirrored["downloads"]["https://dl.rockylinux.org"]).path).parts[1]
    today = world.cache / "today"
    downloads = {
        public: address.replace(f"/{archives}/", "/today/") for public, address in mirrored["downloads"].items()
    }
    have = {name: tag for name, tag in plain.names.items() if name != "train"}

    def refreshed(date: str, archive: str) -> Image:
        today.unlink(missing_ok=True)
        today.symlink_to(archive)
        refresh = {"train": {"REFRESH": date}}
        moved = {**mirrored, "downloads": downloads}
        return chain.built(STACK, world, have=have, by_hand=refresh, **keys, mirrors=moved).image("train")

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
    """dnf, curl, pip and micromamba use it in both stages, and programs in the final image trust it."""
    address = gateway()
    key, root, both = tmp_path / "key.pem", tmp_path / "root.pem", tmp_path / "both.pem"
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:{address}"
    subprocess.run([*request.split(), "-keyout", key, "-out", root], check=True, capture_output=True)
    both.write_text(key.read_text() + root.read_text())
    mirror = Server(world.cache, address, 0, both)
    keys: dict[str, Any] = {**CPU, "distro": "rockylinux9", "train": [ALICE]}
    mirrored = mirrors("rockylinux9")
    sealed: dict[str, Any] = json.loads(json.dumps(mirrored).replace(world.server.url, mirror.url))
    plain = chain_of(built, "rockylinux9", CPU, mirrored)
    have = {name: tag for name, tag in plain.names.items() if name not in {"install", "train"}}
    with_certificate = {**sealed, "caCertificate": root.read_text()}
    images = chain.built(STACK, world, have=have, **keys, mirrors=with_certificate)
    page = mirror.url + "/"
    code = f"import urllib.request; print(urllib.request.urlopen('{page}').status)"
    assert images.image("train").run("python", "-c", code) == "200\n"
    for name in ("install", "train"):
        images.image(name).run("curl", "-fsS", page)
    assert "self-signed certificate" in plain.image("train").fails("curl", "-fsS", page)
    assert "CERTIFICATE_VERIFY_FAILED" in plain.image("train").fails("python", "-c", code)
    # dnf trusts it only through the argument.
    variables = {"DOWNLOADS_ROCKY": sealed["downloads"]["https://dl.rockylinux.org"]}
    output = on_rocky(mirrored).fails("/srv/dnf-install", "less", options=mounted(variables))
    assert "SSL peer certificate or SSH remote key was not OK for " + variables["DOWNLOADS_ROCKY"] in output
    mirror.close()
    docker("rmi", "--force", *(images.names[name] for name in ("install", "train")))


def on_rocky(mirrored: dict[str, Any]) -> Image:
    """Return the image of Rocky Linux 9."""
    return Image(f"{mirrored['images']['docker.io/rockylinux']}/rockylinux:9")


def mounted(environment: dict[str, str]) -> tuple[str, ...]:
    """Return the options of a container with the layers' scripts and some variables."""
    layers = DOCKERFILES / "common/layers"
    return (
        f"--volume={layers}:/srv:ro",
        "--tmpfs=/tmp",
        *(f"--env={key}={value}" for key, value in environment.items()),
    )


@pytest.mark.parametrize(
    ("package", "environment", "message"),
    [
        ("no-such-package", {}, "Unable to find a match: no-such-package"),
        ("unsigned", {}, "is not signed"),
        ("less", {"DOWNLOADS_ROCKY": "{rocky}/elsewhere"}, "Failed to download metadata for repo"),
        ("less", {"DOWNLOADS_ROCKY": "http://me:secret@host"}, "DOWNLOADS_ROCKY holds a user:password@"),
        ("less", {"DOWNLOADS_ROCKY": "mirror.example"}, "DOWNLOADS_ROCKY is 'mirror.example', which is no http://"),
    ],
)
def test_dnf_install_mistake_is_one_line(
    mirrors: Mirrors, package: str, environment: dict[str, str], message: str
) -> None:
    mirrored = mirrors("rockylinux9")
    rocky = mirrored["downloads"]["https://dl.rockylinux.org"]
    variables = {"DOWNLOADS_ROCKY": rocky, **{name: value.format(rocky=rocky) for name, value in environment.items()}}
    output = on_rocky(mirrored).fails("/srv/dnf-install", package, options=mounted(variables))
    assert message in output
    assert "secret" not in output


def test_certificate_is_in_bundles_of_debian_and_red_hat(mirrors: Mirrors) -> None:
    name = ["-subj", "/CN=slipway-test", "-days", "1", "-nodes", "-keyout", "/dev/null"]
    certificate = subprocess.run(["openssl", "req", "-x509", *name], check=True, capture_output=True, text=True).stdout
    line = certificate.splitlines()[1]
    bundles = "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"
    script = f"/srv/trust-ca && grep -lF '{line}' {' '.join(bundles)}"
    image = on_rocky(mirrors("rockylinux9"))
    assert image.run("sh", "-c", script, options=mounted({"CA_CERTIFICATE": certificate})).split() == [*bundles]
    assert "not a PEM certificate" in image.fails("/srv/trust-ca", options=mounted({"CA_CERTIFICATE": "x"}))
