"""The checks of the torch image: each passes on the image, and fails for its fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.engine import DOCKERFILES, Image, check_planted
from tests.images.published import Published

CHECKS = DOCKERFILES / "torch/checks/build"
PACKAGES = "/opt/venv/lib/python3*/site-packages"

FAULTS = {
    "10-imports.py": (f"rm {PACKAGES}/nvidia/*/lib/libcublas.so.*", "libcublas.so"),
    "11-switches.py": (
        f"echo 'import flash_attn_3._C' > $(echo {PACKAGES})/flash_attn_interface.py",
        "flash_attn_interface cannot be imported: ModuleNotFoundError: No module named 'flash_attn_3'",
    ),
    "20-versions.py": ("export TORCH_VISION_VERSION=0.1.0", "torchvision: asked for 0.1.0 (TORCH_VISION_VERSION), but"),
    "21-cuda.py": ("export CUDA_VERSION=10.2.89", ", the image for CUDA 10.2.89"),
    "30-dependencies.sh": ("pip uninstall --quiet --yes sympy", "requires sympy, which is not installed"),
    "40-matmul.py": (
        f"echo 'Tensor.__matmul__ = lambda a, b: mm(a, b) + 1' >> $(echo {PACKAGES}/torch/__init__.py)",
        "a 64 x 64 matrix product in torch.float32 is off by up to 1.0",
    ),
    "41-convolution.py": (
        f"echo 'conv2d = lambda *given: torch.conv2d(*given) * 2' >> $(echo {PACKAGES}/torch/nn/functional.py)",
        "a 3 x 3 convolution gives wrong numbers",
    ),
    "42-numpy.py": (
        f"echo 'from_numpy = lambda array: zeros(4)' >> $(echo {PACKAGES}/torch/__init__.py)",
        "four ones come back from NumPy as [0.0, 0.0, 0.0, 0.0]",
    ),
    "45-compile.py": (
        f"sed -i '/^Requires-Dist: .*triton/d' $(echo {PACKAGES}/torch-*.dist-info/METADATA)",
        "torch asks for no Triton",
    ),
    "50-vision.py": (f"rm {PACKAGES}/torchvision/_C*.so", "torchvision"),
    "51-audio.py": (f"rm {PACKAGES}/torchaudio/lib/*.so", "has no attribute 'rnnt_loss"),
    "60-libraries.py": (f"rm {PACKAGES}/pillow.libs/libtiff*", "needs libtiff"),
    "70-account.sh": ("chmod a-w /opt/venv/lib", "/opt/venv cannot be written, so pip cannot install"),
    "71-shells.sh": ("echo 'PATH=/usr/bin:/bin' >> ~/.profile", "/opt/venv/bin/python"),
    "80-clean.sh": ("touch /opt/venv/left.pyc", "left behind by the build: /opt/venv/left.pyc"),
}
"""By check: a command that breaks the image, run as the image's user, and the check's error."""


def test_checks_have_a_fault_each() -> None:
    assert sorted(FAULTS) == sorted(check.name for check in CHECKS.iterdir())


@pytest.mark.parametrize("check", sorted(FAULTS))
def test_check_of_faulty_image_fails(image: Image, check: str) -> None:
    fault, output = FAULTS[check]
    program = (CHECKS / check).read_text()
    script = f"set -e; cat > /tmp/check; chmod +x /tmp/check; {fault}; exec /tmp/check"
    assert output in image.fails("sh", "-c", script, text=program)


def test_build_with_failing_check_fails(local: Published, context: Path) -> None:
    check_planted(context, "torch/checks/build", local.outputs()["plan"]["torch"]["args"])


def test_gpu_check_without_driver_is_one_line(image: Image) -> None:
    program = (CHECKS.parent / "gpu.py").read_text()
    assert image.fails("python", "-", text=program) == "no NVIDIA driver in this container; was it run with --gpus?\n"
