"""What the builds of torch refuse, each in one line that says what to do."""

from __future__ import annotations

import pytest

from tests.fakes.package_index import VERSIONS, Index
from tests.images.conftest import Built
from tests.images.engine import DOCKERFILES, base_image, build, docker, unique


def refusal(**arguments: str) -> str:
    """Return what a build that must fail printed."""
    done = build("", {**VERSIONS, **arguments}, "--network=host", "--target=installed")
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"APT_MIRROR": "http://user:hunter2@127.0.0.1"},
            "with-apt: APT_MIRROR holds a user:password@, which would stay in the image's history",
        ),
        (
            {"APT_MIRROR": "ftp.debian.org"},
            "with-apt: APT_MIRROR is 'ftp.debian.org', which is no http:// or https://",
        ),
        ({"CA_CERTIFICATE": "/etc/ssl/root.pem"}, "trust-ca: CA_CERTIFICATE is not a PEM certificate"),
    ],
)
def test_build_with_wrong_arguments_is_refused(built: Built, arguments: dict[str, str], message: str) -> None:
    # The parent has Python already, so that little is installed before the refusal.
    output = refusal(BASE_IMAGE=built(target="python").tag, **arguments)
    assert message in output
    assert "hunter2" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"TORCH_INDEX_URL": "https://user:hunter2@127.0.0.1/simple"}, "pip-index: TORCH_INDEX_URL holds"),
        ({"TORCH_VERSION": "2.1.9"}, "No matching distribution found for torch==2.1.9"),
    ],
)
def test_build_with_wrong_wheels_is_refused(
    build_arguments: dict[str, str], arguments: dict[str, str], message: str
) -> None:
    output = refusal(**{**build_arguments, **arguments})
    assert message in output
    assert "hunter2" not in output


def test_index_with_password_is_refused() -> None:
    """By the script that every build has its indexes from; that a build ends then, the index of torch shows."""
    command = ["--env=PYTHON_INDEX_URL=https://user:hunter2@127.0.0.1/simple", base_image(), "/srv/pip-index"]
    scripts = f"--volume={DOCKERFILES / 'common/layers'}:/srv:ro"
    done = docker("run", "--rm", scripts, *command, check=False)
    assert done.returncode != 0
    assert "pip-index: PYTHON_INDEX_URL holds a user:password@" in done.stdout
    assert "hunter2" not in done.stdout


def test_parent_without_archive_to_mirror_is_refused() -> None:
    """Quietly taking the parent's own sources would leave the mirror out."""
    bare = "FROM {base}\nRUN rm -rf /etc/apt/sources.list /etc/apt/sources.list.d\n"
    tag = unique("bare")
    docker("build", f"--tag={tag}", "--network=host", "-", text=bare.format(base=base_image()))
    message = "with-apt: APT_MIRROR is given, but no source of the parent image ends in /debian"
    assert message in refusal(APT_MIRROR="http://127.0.0.1", BASE_IMAGE=tag)
    docker("rmi", tag)


def test_unreachable_archive_fails_the_build(shared_index: Index, archives: dict[str, str]) -> None:
    """Left to itself apt 2.6 waits for ever, or warns and takes what the other archives have: no security fixes."""
    mirror = Index(shared_index.folder, {**archives, "debian-security": "http://127.0.0.1:9"})
    output = refusal(APT_MIRROR=mirror.address)
    mirror.close()
    assert "Failed to fetch" in output
    assert "/debian-security/dists" in output


@pytest.mark.parametrize(("image", "stage"), [("torch", "python"), ("wheels", "builder")])
@pytest.mark.parametrize(
    ("parent", "distro", "message"),
    [
        ("", "debian12", "CUDA none, and slipway:cuda is 12.1.1; name another image there, or what it has"),
        ("ENV CUDA_VERSION=12.2.2", "debian12", "CUDA 12.2.2, and slipway:cuda is 12.1.1"),
        ("ENV CUDA_VERSION=12.1.1", "ubuntu20.04", "debian12, and slipway:distro is ubuntu20.04"),
        ("ENV CUDA_VERSION=12.1.1.1", "debian12", "no NCCL, as a package libnccl2"),  # as 10.2 calls itself 10.2.89
        (
            "ENV CUDA_VERSION=12.1.1 NCCL_VERSION=2.18.3-1",
            "debian12",
            "no NCCL, as a package libnccl2, and slipway:nccl is 2.18.3-1",
        ),
    ],
)
def test_published_parent_unlike_its_stack_is_refused(
    image: str, stage: str, parent: str, distro: str, message: str
) -> None:
    tag = unique("parent")
    docker("build", f"--tag={tag}", "-", text=f"FROM {base_image()}\n{parent}\n")
    has = {"PARENT_CUDA": "12.1.1", "PARENT_DISTRO": distro, "PARENT_NCCL": "2.18.3-1"}
    done = build("", {"BASE_IMAGE": tag, "COMPONENT": "torch", **has}, f"--target={stage}", image=image)
    assert done.returncode != 0
    assert f"check-parent: the image in slipway:ncclTests has {message}" in done.stdout
    docker("rmi", tag)
