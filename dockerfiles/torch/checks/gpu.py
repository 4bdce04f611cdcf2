#!/usr/bin/env python3
"""On a machine with GPUs: the image's CUDA runs on this driver, and every GPU multiplies and convolves as a CPU does.

Prints one line for each thing found. Exits 1, with one line that says what is wrong, at the first thing that is.
"""

import ctypes
import os
import sys

import torch
from torch.nn.functional import conv2d


def check_driver() -> None:
    """Require a driver as new as the CUDA version that torch was built for.

    CUDA runs on a driver of the same major version, be its minor version older ("minor version compatibility"), or of
    a later one. Source: CUDA Compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/.
    """
    built_for = torch.version.cuda
    if built_for is None:
        sys.exit(f"torch {torch.__version__} is a build without CUDA")
    number = ctypes.c_int()  # 13020 is 13.2
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except OSError:
        sys.exit("no NVIDIA driver in this container; was it run with --gpus?")
    major, minor = number.value // 1000, number.value % 1000 // 10
    if major < int(built_for.partition(".")[0]):
        sys.exit(f"torch is built for CUDA {built_for}, but the host's driver only goes up to CUDA {major}.{minor}")
    if not torch.cuda.is_available():
        sys.exit(f"a driver for CUDA {major}.{minor} is there, but torch sees no GPU")
    print(f"torch {torch.__version__}, CUDA {built_for}, driver up to CUDA {major}.{minor}")
    nccl = torch.cuda.nccl.version()
    if isinstance(nccl, int):  # up to torch 1.9: 2708 is 2.7.8
        nccl = nccl // 1000, nccl % 1000 // 100, nccl % 100
    print(f"cuDNN {torch.backends.cudnn.version()}, NCCL {'.'.join(map(str, nccl))}")


def check_count() -> None:
    """Require as many GPUs as the environment variable EXPECTED_GPUS says, if it is set."""
    found, expected = torch.cuda.device_count(), os.environ.get("EXPECTED_GPUS")
    if expected is not None and found != int(expected):
        sys.exit(f"{found} GPUs are there, EXPECTED_GPUS is {expected}")


def exact_bfloat16() -> bool:
    """Have products in bfloat16 summed up in float32; return whether this torch can, which none before 2.0 does."""
    try:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    except (AssertionError, AttributeError):
        return False
    return True


def check_numbers(index: int) -> None:
    """Compare matrix products in each type, and a convolution, on GPU `index` to a CPU's in float64.

    There is bfloat16 from compute capability 8.0 on. The operands are whole numbers that every type holds, and the sums
    are such for float32, in which all of these add up: the products are exact. A convolution may go by way of a
    transform, and is held to 1 part in 1000.
    """
    device = torch.device("cuda", index)
    generator = torch.Generator().manual_seed(index)
    a, b = (torch.randint(-8, 9, (1024, 1024), generator=generator) for _ in range(2))
    exact = a.double() @ b.double()
    major, minor = torch.cuda.get_device_capability(index)
    for dtype in (torch.float32, torch.float64, *([torch.bfloat16] if exact_bfloat16() and major >= 8 else [])):
        product = (a.to(device, dtype) @ b.to(device, dtype)).cpu()
        if not torch.equal(product, exact.to(dtype)):
            sys.exit(f"GPU {index}: a matrix product in {dtype} is off by {(product - exact).abs().max().item()}")

    image = torch.randn(4, 16, 64, 64, generator=generator)
    kernel = torch.randn(32, 16, 3, 3, generator=generator)
    result, expected = conv2d(image.to(device), kernel.to(device)).cpu(), conv2d(image.double(), kernel.double())
    if not torch.allclose(result.double(), expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item()):
        sys.exit(f"GPU {index}: a convolution is off by {(result - expected).abs().max().item()}")
    name = torch.cuda.get_device_name(index)
    print(f"GPU {index}: {name}, sm_{major}{minor}: matrix products and a convolution are right")


check_driver()
check_count()
for gpu in range(torch.cuda.device_count()):
    check_numbers(gpu)
