"""Defects that people reported in public, replanted with the packages of the Python index and Debian."""

from __future__ import annotations

import re

import pytest

from containers.image.binaries.contents import Contents
from containers.image.gpu import gpu_coverage
from containers.image.layers.layer import LayerIndex
from tests.helpers.folder_image import faults, image
from tests.images.package_layers import SITE, Debian, Wheels

pytestmark = pytest.mark.slow


def lines(read: Contents) -> str:
    return "\n".join(str(fault) for fault in faults(read))


def test_opencv_without_libgl_names_its_package(debian_files: LayerIndex, wheels: Wheels) -> None:
    """https://github.com/opencv/opencv-python/issues/370."""
    report = lines(image([debian_files, wheels("opencv-python==4.12.0.88")]))
    assert (
        "missing libGL.so.1: not in the image; needed by /opt/venv/lib/python3.11/site-packages/cv2/cv2.abi3.so"
        in report
    )
    assert "Debian's libgl1 has it" in report


def test_lightgbm_without_openmp_names_its_package(debian_files: LayerIndex, wheels: Wheels) -> None:
    """https://github.com/lightgbm-org/LightGBM/issues/2223."""
    library = f"/{SITE}/lightgbm/lib/lib_lightgbm.so"
    expected = f"{library}: missing libgomp.so.1: not in the image; Debian's libgomp1 has it"
    assert lines(image([debian_files, wheels("lightgbm==4.6.0")])) == expected


def test_onnxruntime_of_another_cuda_misses_cublas(debian_files: LayerIndex, wheels: Wheels) -> None:
    """https://github.com/microsoft/onnxruntime/issues/22968."""
    report = lines(image([debian_files, wheels("onnxruntime-gpu==1.23.2", "nvidia-cuda-runtime==13.0.96")]))
    library = f"/{SITE}/onnxruntime/capi/libonnxruntime_providers_cuda.so"
    expected = f"{library}: missing libcublasLt.so.12: not in the image; the wheel nvidia-cublas-cu12 has it"
    assert expected in report.splitlines()


def test_grpc_for_glibc_on_musl_misses_its_loader(wheels: Wheels, debian_packages: Debian) -> None:
    """https://github.com/grpc/grpc/issues/6126."""
    report = lines(image([debian_packages("bookworm", "musl"), wheels("grpcio==1.76.0")]))
    assert "cygrpc.cpython-311-x86_64-linux-gnu.so: missing ld-linux-x86-64.so.2: not in the image" in report


def test_rdma_provider_of_another_release_misses_version(debian_files: LayerIndex, debian_packages: Debian) -> None:
    """https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/2824."""
    read = image(
        [
            debian_files,
            debian_packages("trixie", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"),
            debian_packages("sid", "libibverbs1"),
        ]
    )
    report = lines(read)
    library = r"/(?:usr/)?lib/x86_64-linux-gnu/libibverbs\.so\.1"
    assert re.search(rf"/libefa\.so\.1\S+: missing version IBVERBS_PRIVATE_34 of {library}", report), report


def test_program_of_newer_debian_misses_versions(debian_files: LayerIndex, debian_packages: Debian) -> None:
    """https://github.com/ChainSafe/lodestar/issues/7346."""
    report = lines(image([debian_files, debian_packages("trixie", "ninja-build")]))
    assert "/usr/bin/ninja: missing version GLIBCXX_3.4.32 of /lib/x86_64-linux-gnu/libstdc++.so.6" in report
    assert "/usr/bin/ninja: missing version GLIBC_2.38 of /lib/x86_64-linux-gnu/libc.so.6" in report


def test_bitsandbytes_without_code_for_blackwell_is_a_fault(debian_files: LayerIndex, wheels: Wheels) -> None:
    """https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1937."""
    read = image([debian_files, wheels("bitsandbytes==0.43.3")])
    [report] = [
        str(fault)
        for fault in gpu_coverage.cover(read, {"RTX 5070 Ti": "12.0"}).faults()
        if fault.file.endswith("/libbitsandbytes_cuda124.so")
    ]
    assert "missing code for RTX 5070 Ti (12.0): it has sm_50" in report


def test_nccl_for_two_cudas_has_two_owners(wheels: Wheels) -> None:
    """https://github.com/marin-community/marin/issues/7344."""
    read = image([wheels("nvidia-nccl-cu12==2.29.7", "nvidia-nccl-cu13==2.30.7")])
    report = lines(read)
    expected = f"/{SITE}/nvidia/nccl/lib/libnccl.so.2: owned by nvidia-nccl-cu12 2.29.7 and nvidia-nccl-cu13 2.30.7 with different content"
    assert expected in report


def test_ctranslate2_with_executable_stack_is_refused(wheels: Wheels, debian_packages: Debian) -> None:
    """https://github.com/OpenNMT/CTranslate2/issues/1849."""
    library = f"/{SITE}/ctranslate2.libs/libctranslate2-bc15bf3f.so.4.5.0"
    expected = f"{library}: needs an executable stack: glibc 2.41 opens no library that asks for one"
    newer = image(
        [debian_packages("trixie", "base-files", "libc6", "libgcc-s1", "libstdc++6"), wheels("ctranslate2==4.5.0")]
    )
    assert lines(newer).startswith(expected), lines(newer)


def test_ctranslate2_with_executable_stack_opens_on_debian_12(debian_files: LayerIndex, wheels: Wheels) -> None:
    """The same wheel: glibc 2.36 makes the stack executable."""
    assert lines(image([debian_files, wheels("ctranslate2==4.5.0")])) == ""
