"""No false alarm: images of Debian with the wheels that people install most."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oci.binaries import contents
from oci.layers.layer import Index
from oci.local_image import open_image
from tests.helpers.folder_image import faults, image
from tests.images import package_layers, real_loader
from tests.images.engine import Image, base_image, docker, remove, unique
from tests.images.package_layers import SITE, Wheels

pytestmark = pytest.mark.slow

TORCH = ("2.9.0", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0")
COMPANIONS = {"2.9.0": ("torchvision", "torchaudio==2.9.0"), "2.10.0": ("torchvision", "torchaudio==2.10.0")}
"""What goes with a torch: torchaudio 2.11 names no torch, and is for CUDA 13."""
POPULAR = (
    ("numpy", "scipy", "pandas"), ("opencv-python-headless",), ("scikit-learn",), ("lightgbm",), ("xgboost",), ("numba",),
    ("shapely",), ("lxml",), ("cryptography",), ("grpcio",), ("psycopg2-binary",), ("pyzmq",), ("pyarrow",), ("polars",),
)  # fmt: skip


@pytest.fixture(scope="module")
def with_openmp(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Debian with what LightGBM and XGBoost ask their users to install."""
    return package_layers.debian_files(tmp_path_factory.mktemp("openmp"), "libgomp1")


@pytest.mark.parametrize("version", TORCH)
def test_wheels_of_torch_have_no_fault(debian_files: Index, wheels: Wheels, version: str) -> None:
    companions = COMPANIONS.get(version, ("torchvision", "torchaudio"))
    assert faults(image([debian_files, wheels(f"torch=={version}", *companions, alone=False)])) == []


@pytest.mark.parametrize("requirements", POPULAR, ids=lambda requirements: requirements[0])
def test_popular_wheels_have_no_fault(with_openmp: Index, wheels: Wheels, requirements: tuple[str, ...]) -> None:
    assert faults(image([with_openmp, wheels(*requirements, alone=False)])) == []


def test_popular_wheels_resolve_as_by_the_real_loader(tmp_path: Path) -> None:
    names = ("numpy", "scipy", "lxml", "grpcio", "shapely", "cryptography", "pyzmq", "psycopg2-binary", "lightgbm")
    package_layers.install_wheels(tmp_path / "site", tmp_path / "cache", *names, alone=False)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image()}\nCOPY site /{SITE}\n")
    tested = Image(unique("wheels"))
    docker("build", "--tag", tested.tag, tmp_path)
    try:
        docker("save", "--output", tmp_path / "image.tar", tested.tag)
        read = contents.read(open_image(str(tmp_path / "image.tar")))
        assert len(real_loader.of_contents(read, tested, every=2)) > 500
        assert real_loader.differences(tested, read, every=2) == []
    finally:
        remove(tested)
