"""One ``mirrors`` block redirects what every Dockerfile of a stack fetches."""

from __future__ import annotations

from typing import Any, Final

import pytest

from stacks import lock, plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.identity.pip_packages import SCRIPT

MIRRORS: Final[dict[str, Any]] = {
    "images": {"docker.io": "m.example/hub"},
    "apt": "http://m.example/apt",
    "pythonIndex": "http://m.example/simple",
    "git": "http://m.example/git",
    "downloads": {"https://content.mellanox.com": "http://m.example/mellanox"},
}


@pytest.fixture
def args(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    monkeypatch.delenv("SLIPWAY_MIRRORS", raising=False)
    planned = plan.make("nccl-cu121", {**read_stack("nccl-cu121"), "mirrors": MIRRORS})
    return {image.spec.name: dict(image.args) for image in planned.images}


def test_mirrors_reach_every_image_of_a_stack(args: dict[str, dict[str, str]]) -> None:
    assert args["nccl-builder"]["BASE_IMAGE"] == "m.example/hub/nvidia/cuda:12.1.1-cudnn8-devel-ubuntu20.04"
    assert args["torch-source"]["BASE_IMAGE"] == "m.example/hub/library/debian:bookworm-slim"
    builds = ("hpcx-build", "nccl-builder", "nccl-tests", "torch-source", "torch-wheel", "torch", "torch-extras")
    for name in builds:
        assert args[name]["APT_MIRROR"] == "http://m.example/apt"
    for name in ("torch-wheel", "deepspeed-wheel", "torch", "torch-extras"):
        assert args[name]["PYTHON_INDEX_URL"] == "http://m.example/simple"
    for name in ("perftest-build", "nccl-tests-build", "torch-source", "deepspeed-source"):
        assert args[name]["GIT_MIRROR"] == "http://m.example/git"
    assert args["hpcx-build"]["DOWNLOADS_HPCX"] == "http://m.example/mellanox/hpc/hpc-x"


def test_mirrors_redirect_the_wheel_index_of_a_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_MIRRORS", raising=False)
    wheels = {"flavor": "base", "cuda": "12.6.3", "torch": {"source": "wheel"}, "extras": {}}

    def index(**mirrors: object) -> set[str | None]:
        planned = plan.make("base-cu129", {**wheels, "mirrors": mirrors})
        return {i.args.get("TORCH_INDEX_URL") for i in planned.images if i.spec.name in {"torch", "apex-wheel"}}

    downloads = {"https://download.pytorch.org": "http://m.example/torch"}
    assert index() == {"https://download.pytorch.org/whl/cu126"}
    assert index(downloads=downloads) == {"http://m.example/torch/whl/cu126"}
    assert index(downloads=downloads, torchIndex="http://m.example/own") == {"http://m.example/own"}


def test_mirrors_reach_only_dockerfiles_that_take_them(args: dict[str, dict[str, str]]) -> None:
    assert "GIT_MIRROR" not in args["torch"]
    assert "DOWNLOADS_HPCX" not in args["torch"]
    assert "CA_CERTIFICATE" not in args["torch"]


def test_mirrors_leave_fingerprints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same commits and the same files in the lock, whatever address they are locked at."""
    monkeypatch.delenv("SLIPWAY_MIRRORS", raising=False)
    locked, packages = lock.read(ROOT), lock.read_tables(ROOT).packages
    public, mirror = "https://pypi.org/simple", MIRRORS["pythonIndex"]
    elsewhere = {
        key.replace(f" {public} ", f" {mirror} "): {
            f"{mirror}/{number}/{file.rpartition('/')[2]}": digest
            for number, (file, digest) in enumerate(files.items())
        }
        for key, files in packages.items()
    }
    commits = {name.replace("https://github.com", MIRRORS["git"]): commit for name, commit in locked.items()}
    monkeypatch.setattr(lock, "read", lambda _: {**locked, **commits})
    monkeypatch.setattr(lock, "read_tables", lambda _: lock.Tables({**packages, **elsewhere}))
    mirrored = plan.make("nccl-cu121", {**read_stack("nccl-cu121"), "mirrors": MIRRORS}).images
    own = plan.make("nccl-cu121").images
    assert [image.tag for image in mirrored] == [image.tag for image in own]
    pages = {
        image.spec.name: image.content.prologues[SCRIPT].lines
        for image in mirrored
        if SCRIPT in image.content.prologues
    }
    assert {"deepspeed-wheel", "torch"} <= pages.keys()
    assert all("http://m.example/simple/" in page and "pythonhosted" not in page for page in pages.values())
    for image, other in zip(mirrored, own, strict=True):
        assert (image.content.folder != other.content.folder) == (image.spec.name in pages)
