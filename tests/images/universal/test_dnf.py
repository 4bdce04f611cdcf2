"""The universal images on Rocky Linux and UBI, whose packages are dnf's: built whole, and refused what dnf must refuse."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.images.engine import DOCKERFILES, Image
from tests.images.universal.conftest import Built
from tests.images.universal.test_universal import STACK, pip
from tests.images.world.upstreams import World

pytestmark = pytest.mark.slow

CPU: dict[str, Any] = {"cuda": False, "cudnn": None, "archList": None}
ALICE = {"uid": 1234, "gid": 100, "tz": "Asia/Seoul", "dnf": ["less", "sudo"], "conda": ["tree=2.1.1"]}

Mirrors = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def mirrors(world: World) -> Mirrors:
    """The mirrors for builds on a distribution, whose image is made the first time."""
    return cache(world.with_dnf)


@pytest.mark.parametrize(
    ("distro", "more"), [("rockylinux9", CPU), ("ubi9", CPU), ("rockylinux8", {})], ids=["rocky", "ubi", "rocky-cuda"]
)
def test_the_whole_chain_stands_on_it(built: Built, mirrors: Mirrors, distro: str, more: dict[str, Any]) -> None:
    made = built(STACK, **more, distro=distro, mirrors=mirrors(distro), train=[ALICE])
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
def test_dnf_says_no(mirrors: Mirrors, package: str, environment: dict[str, str], said: str) -> None:
    found = mirrors("rockylinux9")
    rocky = found["downloads"]["https://dl.rockylinux.org"]
    given = {"DOWNLOADS_ROCKY": rocky, **{name: value.format(rocky=rocky) for name, value in environment.items()}}
    told = on_rocky(found).fails("/srv/dnf-install", package, options=mounted(given))
    assert said in told
    assert "secret" not in told


def test_a_certificate_is_trusted_by_what_asks_debians_bundle_and_red_hats(mirrors: Mirrors) -> None:
    name = ["-subj", "/CN=slipway-test", "-days", "1", "-nodes", "-keyout", "/dev/null"]
    made = subprocess.run(["openssl", "req", "-x509", *name], check=True, capture_output=True, text=True).stdout
    line = made.splitlines()[1]
    bundles = "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"
    script = f"/srv/trust-ca && grep -lF '{line}' {' '.join(bundles)}"
    image = on_rocky(mirrors("rockylinux9"))
    assert image.run("sh", "-c", script, options=mounted({"CA_CERTIFICATE": made})).split() == [*bundles]
    assert "not a PEM certificate" in image.fails("/srv/trust-ca", options=mounted({"CA_CERTIFICATE": "x"}))
