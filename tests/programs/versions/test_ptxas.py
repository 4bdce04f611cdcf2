"""The CUDA table against NVIDIA's own compilers: what ptxas takes, and which gcc the headers refuse."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from containers.image.gpu.release_order import order
from stacks.versions.tables import table
from tests.helpers.index_wheel import fetched

PACKAGES = [(name, package) for name, row in table("cuda")["line"].items() for package in row.get("nvcc", ())]


def member(wheel: zipfile.ZipFile, ending: str) -> bytes | None:
    return next((wheel.read(name) for name in wheel.namelist() if name.endswith(ending)), None)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "package"), PACKAGES)
def test_cuda_capabilities_equal_those_of_ptxas(line: str, package: str, tmp_path: Path) -> None:
    with fetched(package, tmp_path) as wheel:
        program, headers = member(wheel, "/bin/ptxas"), member(wheel, "/crt/host_config.h")
    if headers is None:  # CUDA 13 has them in a package of their own
        with fetched(package.replace("nvidia-cuda-nvcc", "nvidia-cuda-crt"), tmp_path) as wheel:
            headers = member(wheel, "/crt/host_config.h")
    assert program
    assert headers
    ptxas = tmp_path / "ptxas"
    ptxas.write_bytes(program)
    ptxas.chmod(0o755)

    printed = subprocess.run([ptxas, "--help"], check=True, capture_output=True, text=True).stdout
    option = printed[printed.index("--gpu-name") :].partition("\n\n")[0]
    sm, compute = ({*re.findall(kind + r"_(\d+?)(\d[a-z]?)\b", option)} for kind in ("sm", "compute"))
    assert sm == compute, f"{package}: ptxas compiles for other capabilities than it takes as PTX: a row has one list"
    (gcc,) = {int(newest) for newest in re.findall(r"__GNUC__ > (\d+)", headers.decode())}
    archs = sorted((f"{major}.{minor}" for major, minor in sm), key=lambda arch: (order(arch), arch))
    row = table("cuda")["line"][line]
    assert (row["gcc"], {*row["archs"].split()}) == (gcc, {*archs}), (
        f'write gcc = {gcc}, archs = "{" ".join(archs)}" in the line "{line}" of cuda.toml: {package} has these'
    )


def test_cuda_lines_since_11_7_name_their_packages() -> None:
    named = {line for line, _ in PACKAGES}
    without = [name for name in table("cuda")["line"] if order(name) >= (11, 7) and name not in named]
    assert not without, (
        'add nvcc = ["nvidia-cuda-nvcc==..."] to these lines of cuda.toml, the package whose ptxas was read'
    )
    assert not [name for name in named if order(name) < (11, 7)]
