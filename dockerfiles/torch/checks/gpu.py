#!/usr/bin/env python3
"""On a machine with GPUs: CUDA runs on this driver, every GPU computes as a CPU does, and NCCL joins them all.

Prints one line for each thing found. Exits 1 at the first fault, with one line about it. Its measurements go to the
file GPU_MEASUREMENTS too, if set: common/gpu/report.py sets it. ACCEPTED_LOSS, such as 0.4, is the share of an expected
rate that NCCL may lack where the rule below does not fit.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations, starmap
from pathlib import Path
from typing import NamedTuple

import torch
from torch.cuda import nccl
from torch.nn.functional import conv2d

LOSS = 0.13
"""The share that may be missing of an expected rate. Two runs differ by up to 2 %, so a loss of 15 % is found."""

PCIE = 64e9
"""Bytes a second of 16 lanes of PCIe 5.0: what copies faster does so over NVLink. Without it GPUs share their lanes,
and how fast they are together says nothing of NCCL."""

WAIT = 2e-4
"""Seconds that a number takes from one GPU to another over NVLink at most. It takes 13 to 18 microseconds on H100,
and 1 to 2 milliseconds where another process computes."""

MOST = 1 << 30
"""Bytes of the largest vectors that NCCL moves, if the GPUs have room for them. The smallest have a MiB."""

ALIGNED = 512
"""Bytes of which each GPU's part of a vector is a multiple, as torch's allocations are. Of thirds of 1 GiB, which are
not, NCCL gathers 192 GB/s in place of 306: it wants multiples of 16 (https://github.com/NVIDIA/nccl/issues/413)."""

Streams = "dict[tuple[int, int], tuple[torch.cuda.Stream, torch.cuda.Stream]]"
"""Streams on one GPU and on another, for each two."""

LIMIT = 120
"""Seconds after which an operation hangs. The slowest, by TCP in place of NVLink, takes less than 20."""


class _Operation(NamedTuple):
    """What NCCL does with whole vectors, one on each GPU, and with parts of their length over the number of GPUs.

    It takes ``steps`` in which each GPU sends a part to the next, and does ``own`` of one for itself. Bus bandwidth, as
    NCCL's tests define it, is what a GPU sends a second.
    """

    run: Callable[[list[torch.Tensor], list[torch.Tensor]], object]
    steps: int
    own: float

    def seconds(self, part: float, copy: float, wait: float) -> float:
        """Return what a healthy machine takes for parts of some bytes.

        Its GPUs copy ``copy`` bytes a second to each other, and wait ``wait`` seconds for a single number. NCCL reaches
        1 / 1.05 of that rate. NCCL 2.28.9 is within 2 % of this at 1 GiB on two and on four H100 and H200, and on three
        H200. On less it is up to 8 % slower on two, 4 % on three and 3 % on four, and faster below 32 MiB. The waits of
        many steps are those of A100: four of them take 133 microseconds for an all-reduce of 8 MiB, and 53 of them
        for its bytes (rcgsheffield/sheffield_hpc at 50304ec, stanage/software/libs/cuda.rst). On eight H100 this is 350
        GB/s for an all-reduce of 1 GiB, where 361 were measured; the other operations were not.
        containers/evidence/gpu_report.py judges by the same rule.
        """
        return wait * (2.5 + self.steps**2 / 12) + part * (1.05 * self.steps + self.own) / copy


def operations(count: int) -> dict[str, _Operation]:
    """Return NCCL's operations on so many GPUs."""
    return {
        "all-reduce": _Operation(lambda whole, _: nccl.all_reduce(whole), 2 * (count - 1), 0.25),
        "broadcast": _Operation(lambda whole, _: nccl.broadcast(whole), count, 0),
        "all-gather": _Operation(lambda whole, parts: nccl.all_gather(parts, whole), count - 1, 0.4),
        "reduce-scatter": _Operation(nccl.reduce_scatter, count - 1, 0.38),
    }


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

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of events before these, which nobody wants; some torch warns at the start
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
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


def accepted_loss() -> float:
    """Return the share that may be missing of NCCL's expected rates: LOSS, or ACCEPTED_LOSS if it is set."""
    text = os.environ.get("ACCEPTED_LOSS", "")
    try:
        share = float(text or LOSS)
    except ValueError:
        share = 0
    if not 0 < share < 1:
        sys.exit(f"ACCEPTED_LOSS is '{text}'; give a share between 0 and 1, such as 0.4, or leave it out")
    return share


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


@contextlib.contextmanager
def ending(what: str) -> Iterator[None]:
    """End the checks if something does not end: the host waits for the GPUs, and no exception reaches it."""

    def end() -> None:
        print(f"{what} has not ended after {LIMIT} s", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(LIMIT, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def marks() -> list[torch.cuda.Event]:
    """Return an event for each GPU. It is over once the GPU has done all work queued before."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(torch.cuda.device_count())]
    for gpu, event in enumerate(events):
        event.record(torch.cuda.current_stream(gpu))
    return events


def seconds(work: Callable[[], object]) -> float:
    """Return what some work takes the GPUs: the median of five batches of it.

    The host has no part in it, be it slow or busy: the GPUs sleep until it has queued a whole batch. They begin
    together, at the end of a round before.
    """
    gpus = range(torch.cuda.device_count())
    cycles, rounds, begin = 1 << 22, 1, time.monotonic()  # 2 ms at 2 GHz
    batches: list[float] = []
    work()
    while len(batches) < 2 or (len(batches) < 6 and time.monotonic() < begin + 0.5):
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda._sleep(cycles)  # noqa: SLF001 - whatever torch has the same in public takes memory
        work()
        starts = marks()
        for _ in range(rounds):
            work()
        ends = marks()
        late = any(start.query() for start in starts)  # a GPU woke up too early
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        if late and cycles < 1 << 28:
            cycles *= 2
            continue
        batches.append(max(starts[gpu].elapsed_time(ends[gpu]) for gpu in gpus) / 1000 / rounds)
        rounds = max(1, min(20, int(0.008 / batches[-1])))
    return statistics.median(batches[1:])


def check_alike(count: int) -> None:
    """Require GPUs of one name to be as fast as each other, as one that is throttled or busy is not.

    They copy within their memory, multiply, and copy to each other. Of the last, each GPU's middle rate counts, and
    only over NVLink: with PCIe, some are nearer than others.
    """
    names = [torch.cuda.get_device_name(gpu) for gpu in range(count)]
    sources, targets = ([torch.zeros(1 << 26, device=f"cuda:{gpu}") for gpu in range(count)] for _ in range(2))
    matrices = [torch.ones(2048, 2048, device=f"cuda:{gpu}") for gpu in range(count)]

    def copied(gpu: int, other: int) -> float:
        return (1 << 28) / seconds(partial(targets[other].copy_, sources[gpu])) / 1e9

    def sent(gpu: int) -> float:
        return statistics.median_low(copied(gpu, other) for other in range(count) if other != gpu)

    def multiplied(gpu: int) -> float:
        return 2 * 2048**3 / seconds(partial(torch.mm, matrices[gpu], matrices[gpu])) / 1e12

    kinds: tuple[tuple[str, Callable[[int], float], float], ...] = (
        ("copies {:.0f} GB/s within its memory", lambda gpu: copied(gpu, gpu), 0),
        ("multiplies at {:.1f} TFLOP/s", multiplied, 0),
        ("copies {:.0f} GB/s to another", sent, PCIE / 1e9),
    )
    for clause, rate, least in kinds:
        rates = [rate(gpu) for gpu in range(count)]
        for gpu, name in enumerate(names):
            best = max((other for other in range(count) if names[other] == name), key=rates.__getitem__)
            share = 1 - rates[gpu] / rates[best]
            if rates[best] > least and share > LOSS:  # once more: it may have been for a moment
                rates[gpu] = max(rates[gpu], rate(gpu))
                share = 1 - rates[gpu] / rates[best]
            if rates[best] > least and share > LOSS:
                sys.exit(
                    f"GPU {gpu} is slow: it {clause.format(rates[gpu])}, and GPU {best} {clause.format(rates[best])}: "
                    f"{share:.0%} are lost; look at other processes (nvidia-smi), clocks (nvidia-smi -q -d "
                    "PERFORMANCE) and links (nvidia-smi nvlink -s)"
                )
        print(f"the slowest GPU {clause.format(min(rates))}")


def check_results(count: int) -> None:
    """Have NCCL's operations give exact results: sums of whole numbers below 2**24, which float32 holds exactly."""
    part = torch.arange(1 << 22, dtype=torch.float32).remainder_(1024)
    total = count * (count + 1) // 2
    results = {
        "all-reduce": [part.repeat(count) * total] * count,
        "broadcast": [part.repeat(count)] * count,
        "all-gather": [torch.cat([part * (gpu + 1) for gpu in range(count)])] * count,
        "reduce-scatter": [part * total] * count,
    }
    for name, operation in operations(count).items():
        parts = [(part * (gpu + 1)).cuda(gpu) for gpu in range(count)]
        whole = [numbers.repeat(count) for numbers in parts]
        with ending(f"NCCL's {name} over {count} GPUs"):
            try:
                operation.run(whole, parts)
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                sys.exit(f"NCCL fails ({reason}); without NVLink it shares memory: docker run --ipc host")
            outputs = [numbers.cpu() for numbers in (parts if name == "reduce-scatter" else whole)]
        for gpu, expected in enumerate(results[name]):
            if not torch.equal(outputs[gpu], expected):
                sys.exit(f"GPU {gpu}: NCCL's {name} is off by {(outputs[gpu] - expected).abs().max().item()}")


def exchange(sources: list[torch.Tensor], targets: list[torch.Tensor], streams: Streams) -> None:
    """Have each GPU copy its vector, in equal parts, to the GPUs to which it has streams, all at once."""
    count = len(sources)
    size = sources[0].numel() * count // len(streams)
    for (gpu, other), (here, there) in streams.items():
        here.wait_stream(torch.cuda.current_stream(gpu))
        there.wait_stream(torch.cuda.current_stream(other))
        first = ((other - gpu) % count - 1) * size
        with torch.cuda.stream(here), torch.cuda.stream(there):
            targets[other][first : first + size].copy_(sources[gpu][first : first + size])
    for (gpu, other), (here, there) in streams.items():
        torch.cuda.current_stream(gpu).wait_stream(here)
        torch.cuda.current_stream(other).wait_stream(there)


def largest(count: int) -> int:
    """Return the bytes of the largest vectors to move: a power of two, four of which fit into what memory is free."""
    free = [torch.cuda.get_device_properties(gpu).total_memory for gpu in range(count)]
    if hasattr(torch.cuda, "mem_get_info"):  # from torch 1.11 on
        torch.cuda.empty_cache()
        free = [torch.cuda.mem_get_info(gpu)[0] for gpu in range(count)]
    return min(MOST, 1 << (min(free) // 4).bit_length() - 1)


def suspects() -> str:
    """Return what may make NCCL slow: the settings that it has, and what to look at."""
    settings = [f"{name}={os.environ[name][:30]}" for name in sorted(os.environ) if name.startswith("NCCL_")]
    settings = [each for each in settings if not each.startswith(("NCCL_DEBUG", "NCCL_VERSION"))]
    files = [str(path) for path in (Path("/etc/nccl.conf"), Path.home() / ".nccl.conf") if path.is_file()]
    return ", ".join([*settings[:3], *files, "other processes and clocks (nvidia-smi), links (nvidia-smi nvlink -s)"])


def copies(vectors: list[torch.Tensor], others: list[torch.Tensor]) -> tuple[float, float]:
    """Return how many bytes a second each GPU copies to the others, all at once, and what a single number takes.

    Behind a switch a GPU copies the fastest to a single one: four H100 copy 390 GB/s each to the next one, and 145 to
    213 to all others. Where each two have links of their own, it is the other way round. NCCL uses all links of both.
    """
    count = len(vectors)
    pairs = [(gpu, other) for gpu in range(count) for other in range(count) if gpu != other]
    streams = {(gpu, other): (torch.cuda.Stream(gpu), torch.cuda.Stream(other)) for gpu, other in pairs}
    ring = {(gpu, other): each for (gpu, other), each in streams.items() if other == (gpu + 1) % count}
    size = vectors[0].numel() * 4
    wait = min(seconds(partial(others[other][:1].copy_, vectors[gpu][:1])) for gpu, other in pairs)
    return size / min(seconds(partial(exchange, vectors, others, each)) for each in (ring, streams)), wait


def check_rates(count: int) -> None:
    """Require NCCL's operations to be as fast as copies between the GPUs let expect, where there is NVLink."""
    most = largest(count)
    vectors, others = ([torch.zeros(most // 4, device=f"cuda:{gpu}") for gpu in range(count)] for _ in range(2))
    (copy, wait), loss = copies(vectors, others), accepted_loss()
    rates: dict[str, dict[int, float]] = {name: {} for name in operations(count)}
    faults = []
    for size in (1 << power for power in range(20, most.bit_length())):
        part = size // count // ALIGNED * ALIGNED
        whole, parts = [vector[: part // 4 * count] for vector in vectors], [vector[: part // 4] for vector in others]
        for name, operation in operations(count).items():
            expected = operation.seconds(part, copy, wait)
            work = partial(operation.run, whole, parts)
            with ending(f"NCCL's {name} of {size >> 20} MiB over {count} GPUs"):
                taken = seconds(work)
                if expected < (1 - loss) * taken:  # once more: it may have been for a moment
                    taken = min(taken, seconds(work))
            rate, usual = (operation.steps * part / each / 1e9 for each in (taken, expected))
            rates[name][size >> 20] = round(rate, 1)
            if expected < (1 - loss) * taken:
                what = f"{name} of {size >> 20} MiB over {count} GPUs moves {rate:.0f} GB/s of {usual:.0f} expected"
                faults.append((1 - expected / taken, what))

    bus = rates["all-reduce"][most >> 20]
    measure(
        busBandwidth=bus,
        copyBandwidth=round(copy / 1e9, 1),
        copyWait=round(wait * 1e6, 1),
        gpus=count,
        peerAccess=all(starmap(torch.cuda.can_device_access_peer, permutations(range(count), 2))),
        rates=rates,
        kernels=kernels(lambda: [operation.run(whole, parts) for operation in operations(count).values()]),
    )
    for name, by_size in rates.items():
        print(f"{name} of " + ", ".join(f"{size} MiB: {rate:.0f}" for size, rate in by_size.items()) + " GB/s")
    if copy > PCIE:
        judge(wait, faults, f"of GPUs that copy {copy / 1e9:.0f} to each other", sum(map(len, rates.values())))
    measured = f"{bus:.0f} GB/s bus bandwidth over {count} GPUs; one copies to another at {copy / 1e9:.0f} GB/s"
    print(f"NCCL adds up right: {measured}" + ("" if copy > PCIE else "; without NVLink, rates are not judged"))


def judge(wait: float, faults: list[tuple[float, str]], expected: str, number: int) -> None:
    """Fail for a loss in some of a number of measurements, or for GPUs that wait too long for each other."""
    if wait > WAIT:
        sys.exit(
            f"the GPUs are busy: a number takes {wait * 1e6:.0f} microseconds from one to another, and at most "
            f"{WAIT * 1e6:.0f} are expected: {1 - WAIT / wait:.0%} are lost; look at other processes (nvidia-smi)"
        )
    if faults:
        share, what = max(faults)
        sys.exit(
            f"NCCL is slow: {what} {expected}: {share:.0%} are lost, and too much in {len(faults)} of {number} "
            f"measurements; look at {suspects()}"
        )


check_driver()
check_count()
check_switches()
gpus = torch.cuda.device_count()
for index in range(gpus):
    check_numbers(index)
if gpus == 1:
    print("1 GPU: none to compare it with, and nothing for NCCL to add up")
else:
    check_alike(gpus)
    check_results(gpus)
    check_rates(gpus)
