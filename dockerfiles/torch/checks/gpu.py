#!/usr/bin/env python3
"""On a machine with GPUs: CUDA runs on this driver, every GPU computes as a CPU does, and NCCL joins them all.

Prints one line for each thing found. Exits 1, with one line that says what is wrong, at the first thing that is. What
it measures goes to the file GPU_MEASUREMENTS too, if that is set: common/gpu/report.py sets it.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.cuda import nccl
from torch.nn.functional import conv2d

SHARE = 1 / 3
"""What NCCL must reach of the rate at which one GPU copies to another over NVLink. It reaches more than two thirds; by
way of the host's memory, as it goes without a word where it cannot use NVLink, about a tenth."""

PCIE = 64e9
"""Bytes a second of 16 lanes of PCIe 5.0: what copies faster does so over NVLink. Without it GPUs share their lanes,
and how fast they are together says nothing of NCCL."""


def measure(**values: object) -> None:
    """Add to the report of the checks what was measured."""
    path = os.environ.get("GPU_MEASUREMENTS")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def kernels(work: Callable[[], object]) -> list[str]:
    """Return the names of the GPU kernels that some work runs; none where torch has no profiler for them."""
    try:
        from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - not before torch 1.8.1

        with warnings.catch_warnings(), profile(activities=[ProfilerActivity.CUDA]) as profiler:
            warnings.simplefilter("ignore")  # of events before these, which nobody wants
            work()
            for gpu in range(torch.cuda.device_count()):
                torch.cuda.synchronize(gpu)
        names = {event.name for event in profiler.events() if str(event.device_type).endswith("CUDA")}
    except Exception as error:  # a measurement beside the checks; it must fail none of them
        return [f"not known: {type(error).__name__}"]
    return sorted(name[:200] for name in names if not name.startswith(("Memcpy", "Memset")))


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
    version = nccl.version()
    if isinstance(version, int):  # up to torch 1.9: 2708 is 2.7.8
        version = version // 1000, version % 1000 // 100, version % 100
    print(f"cuDNN {torch.backends.cudnn.version()}, NCCL {'.'.join(map(str, version))}")
    measure(torch=torch.__version__, cuda=built_for, cudaDriver=f"{major}.{minor}")


def check_count() -> None:
    """Require as many GPUs as the environment variable EXPECTED_GPUS says, if it is set."""
    present, expected = torch.cuda.device_count(), os.environ.get("EXPECTED_GPUS", "")
    if expected and not expected.isdecimal():
        sys.exit(f"EXPECTED_GPUS is '{expected}'; give a whole number, or leave it out")
    if expected and present != int(expected):
        sys.exit(f"{present} GPUs are there, EXPECTED_GPUS is {expected}")


def check_switches() -> None:
    """Import what is switched on, and may want the driver for it."""
    for module in ("transformer_engine.pytorch", "flash_attn_interface"):
        if importlib.util.find_spec(module.partition(".")[0]):
            try:
                importlib.import_module(module)
            except Exception as error:
                sys.exit(f"{module} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}")
            print(f"{module} imports")


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
    if index == 0:
        matrix = a.to(device, torch.float32)
        measure(kernels=kernels(lambda: (matrix @ matrix, conv2d(image.to(device), kernel.to(device)))))
    name = torch.cuda.get_device_name(index)
    print(f"GPU {index}: {name}, sm_{major}{minor}: matrix products and a convolution are right")


def rate(work: Callable[[], object], size: int) -> float:
    """Return the bytes per second at which `work` moves `size` bytes, the first rounds left out."""
    for rounds in (3, 10):
        start = time.perf_counter()
        for _ in range(rounds):
            work()
        for gpu in range(torch.cuda.device_count()):
            torch.cuda.synchronize(gpu)
    return size * rounds / (time.perf_counter() - start)


def check_together(count: int) -> None:
    """Have NCCL add up whole numbers over the GPUs of this machine, and not much slower than they copy to each other.

    The sums are below 2**24, which float32 holds exactly, for up to 180 GPUs. Bus bandwidth is as NCCL's tests define
    it: bytes over time, times 2(n-1)/n; a ring goes no faster than the slowest copy from one GPU to its neighbour.
    """
    if count == 1:
        print("1 GPU: nothing for NCCL to add up")
        return
    row = torch.arange(1 << 26, dtype=torch.float32).remainder_(1024)
    numbers = [(row * (gpu + 1)).cuda(gpu) for gpu in range(count)]
    try:
        nccl.all_reduce(numbers)
    except RuntimeError as error:
        sys.exit(f"NCCL fails ({str(error).splitlines()[0]}); without NVLink it shares memory: docker run --ipc host")
    expected = row * (count * (count + 1) // 2)
    for gpu, total in enumerate(numbers):
        if not torch.equal(total.cpu(), expected):
            sys.exit(f"GPU {gpu}: NCCL's sum is off by {(total.cpu() - expected).abs().max().item()}")

    size = row.numel() * row.element_size()
    copy = min(rate(partial(numbers[gpu - 1].copy_, numbers[gpu]), size) for gpu in range(count))
    bus = rate(lambda: nccl.all_reduce(numbers), size) * 2 * (count - 1) / count
    peers = all(torch.cuda.can_device_access_peer(a, b) for a in range(count) for b in range(count) if a != b)
    measure(
        busBandwidth=round(bus / 1e9, 1),
        copyBandwidth=round(copy / 1e9, 1),
        gpus=count,
        peerAccess=peers,
        kernels=kernels(partial(nccl.all_reduce, numbers)),
    )
    measured = f"{bus / 1e9:.0f} GB/s bus bandwidth over {count} GPUs; one copies to another at {copy / 1e9:.0f} GB/s"
    if copy > PCIE and bus < SHARE * copy:
        sys.exit(f"NCCL is slow: {measured}")
    print(f"NCCL adds up right: {measured}")


check_driver()
check_count()
check_switches()
for gpu in range(torch.cuda.device_count()):
    check_numbers(gpu)
check_together(torch.cuda.device_count())
