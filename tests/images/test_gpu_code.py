"""GPU code of wheels that others compiled, against NVIDIA's own reader, and the gate of architectures against such a wheel.

Their fat binaries are plain and of both compressions: LZ4, as xFormers' (CUDA 12), and zstd, as torchvision's (CUDA 13).
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.image.gpu import gpu_coverage
from tests.helpers import folder_image

pytestmark = pytest.mark.slow

READER = "nvidia-cuda-cuobjdump==13.5.37"
SITE = "opt/venv/lib/python3.11/site-packages"
XFORMERS = "xformers==0.0.35"
WHEELS = [XFORMERS, "bitsandbytes==0.50.2", "torchao==0.18.0", "torchaudio==2.11.0", "torchvision==0.29.2"]
UNREAD = {"libbitsandbytes_cuda121.so"}
"""Files in which cuobjdump 13.5 stops: `Invalid ELF`. That of CUDA 12.4 reads them as we do."""
COMPILED = "7.5 8.0+PTX 9.0a"
"""What xFormers' wheel is compiled for (facebookresearch/xformers v0.0.35, .github/workflows/wheels_build.yml:33, :58)."""


def unpacked(requirement: str, folder: Path) -> Path:
    """Download a wheel of the Python index, and return the folder of its files."""
    options = [
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.11",
        "--platform=manylinux_2_28_x86_64",
    ]
    options += ["--platform=manylinux_2_24_x86_64", "--platform=manylinux2014_x86_64"]
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={folder / 'wheels'}", requirement]
    subprocess.run(command, check=True)
    (wheel,) = (folder / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "files")
    return folder / "files"


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (program,) = unpacked(READER, tmp_path_factory.mktemp("reader")).rglob("bin/cuobjdump")
    program.chmod(0o755)
    return program


def listed(cuobjdump: Path, file: Path) -> Iterator[str]:
    """Yield the code in a file by NVIDIA's reader, by the names of its compilers."""
    for option, ending, kind in (("--list-elf", "cubin", "sm"), ("--list-ptx", "ptx", "compute")):
        done = subprocess.run([cuobjdump, option, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "does not contain device code" in done.stderr, f"{file.name}: {done.stderr}"
        yield from (f"{kind}_{arch}" for arch in re.findall(rf"\bsm_(\w+)\.{ending}\b", done.stdout))


@pytest.mark.parametrize("requirement", WHEELS)
def test_gpu_code_of_wheel_is_what_cuobjdump_lists(requirement: str, cuobjdump: Path, tmp_path: Path) -> None:
    files = unpacked(requirement, tmp_path)
    binaries = folder_image.image([folder_image.index(files)]).binaries
    read = {path: {*map(str, binary.gpu_code)} for path, binary in binaries.items() if Path(path).name not in UNREAD}
    assert any(read.values())
    assert read == {path: {*listed(cuobjdump, files / path)} for path in read}


def test_gate_takes_a_wheel_with_code_for_its_list(tmp_path: Path) -> None:
    contents = folder_image.image([folder_image.index(unpacked(XFORMERS, tmp_path), SITE)])
    assert list(gpu_coverage.lacking(contents, {"xformers": COMPILED})) == []
    faults = list(gpu_coverage.lacking(contents, {"xformers": f"7.0 {COMPILED}"}))
    assert [(fault.file, fault.names) for fault in faults] == [(f"/{SITE}/xformers/_C.so", ("7.0",))]
