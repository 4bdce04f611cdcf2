"""No false alarm: images of Debian with the wheels that people install most."""

from __future__ import annotations

import pytest

from oci.layers.layer import Index
from tests.helpers.folder_image import faults, image
from tests.images import package_layers
from tests.images.package_layers import Wheels

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
