#!/usr/bin/env python3
"""NCCL is right and fast on the GPUs of all nodes, over InfiniBand between nodes, and Megatron-LM trains on them.

Started by torchrun, with infiniband.py beside it. Prints a line for each thing found. A process with a fault prints one
line about it, and exits with 1. The measurements go to the file GPU_MEASUREMENTS too, if set: common/gpu/report.py sets
it, and reads NCCL's log as well.
"""

import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

# Before NCCL is loaded; %h and %p are NCCL's own: the host, and the number of the process. A report has its own log.
if not (os.environ.get("GPU_MEASUREMENTS") and os.environ.get("NCCL_DEBUG_FILE")):
    os.environ["NCCL_DEBUG_FILE"] = f"{Path(tempfile.mkdtemp(), 'nccl')}.%h.%p"
os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH"}
log = Path(os.environ["NCCL_DEBUG_FILE"].replace("%h", "*").replace("%p", str(os.getpid())))
sys.path.insert(0, "/megatron-lm")

import infiniband  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL, NODE = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
LOSS = 0.15
"""The share that may be missing of what is expected of an all-reduce within a node, as torch/checks/gpu.py has it."""
NVLINK = 64e9
"""Bytes a second: what copies faster from one GPU to another does so over NVLink. Without it no rate is judged."""
LIMIT = 300
"""Seconds after which an operation hangs."""


def fail(fault: str) -> None:
    """End this process, and so the whole, with one line."""
    sys.exit(f"rank {RANK}: {fault}")


def measure(**values: object) -> None:
    """Add to the report of the checks what was measured."""
    if path := os.environ.get("GPU_MEASUREMENTS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def seconds(work: Callable[[], object]) -> float:
    """Return what one round takes, the first ones left out."""
    rounds = 10
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / rounds


def hang(operation: str) -> None:
    """End this process: it waits for the GPU, and no exception reaches it."""
    print(f"rank {RANK}: {operation} over {WORLD} GPUs has not ended after {LIMIT} s", file=sys.stderr, flush=True)
    os._exit(1)


def check_results() -> None:
    """Have NCCL's operations give exact results: sums of whole numbers below 2**24, which float32 holds exactly."""
    part = torch.arange((1 << 24) // WORLD, device="cuda", dtype=torch.float32).remainder_(1024)
    own, total = part * (RANK + 1), WORLD * (WORLD + 1) // 2
    operations: dict[str, tuple[Callable[..., object], torch.Tensor]] = {
        "all-reduce": (lambda whole, _: dist.all_reduce(whole), (part * total).repeat(WORLD)),
        "broadcast": (lambda whole, _: dist.broadcast(whole, 0), part.repeat(WORLD)),
        "all-gather": (dist.all_gather_into_tensor, torch.cat([part * (rank + 1) for rank in range(WORLD)])),
        "reduce-scatter": (lambda whole, each: dist.reduce_scatter_tensor(each, whole), part * total),
    }
    for name, (run, expected) in operations.items():
        whole, each = own.repeat(WORLD), own * 1
        timer = threading.Timer(LIMIT, hang, [name])
        timer.daemon = True  # it must keep no failed process alive
        timer.start()
        run(whole, each)
        torch.cuda.synchronize()
        timer.cancel()
        result = each if name == "reduce-scatter" else whole
        if not torch.equal(result, expected):
            fail(f"{name} over {WORLD} GPUs is off by {(result - expected).abs().max().item()}")
    if RANK == 0:
        print(f"{', '.join(operations)} over {WORLD} GPUs are right")


def check_rate() -> None:
    """Compare NCCL's bus bandwidth within a node, as NCCL's tests define it, to a plain copy between two GPUs."""
    if NODE == 1:
        return
    nodes = [dist.new_group(list(range(first, first + NODE))) for first in range(0, WORLD, NODE)]
    group = nodes[RANK // NODE]
    numbers = torch.empty(1 << 29, device="cuda", dtype=torch.bfloat16)
    copied = torch.zeros(1, device="cuda", dtype=torch.float64)
    if LOCAL == 0:
        there = torch.empty_like(numbers, device="cuda:1")
        copied += numbers.nbytes / seconds(lambda: there.copy_(numbers))
        del there
    dist.all_reduce(copied, group=group)
    rate = numbers.nbytes / seconds(lambda: dist.all_reduce(numbers, group=group)) * 2 * (NODE - 1) / NODE
    measured = (
        f"{rate / 1e9:.0f} GB/s bus bandwidth over {NODE} GPUs; one copies to another at {copied.item() / 1e9:.0f} GB/s"
    )
    if RANK == 0:
        measure(busBandwidth=round(rate / 1e9, 1), copyBandwidth=round(copied.item() / 1e9, 1), gpus=NODE)
    expected = copied.item() / (1.05 + 0.125 / (NODE - 1))
    if copied.item() > NVLINK and rate < (1 - LOSS) * expected:
        fail(
            f"NCCL is slow: {measured}: {expected / 1e9:.0f} GB/s are expected, and {1 - rate / expected:.0%} are lost"
        )
    if LOCAL == 0:
        print(f"node {RANK // NODE}: {measured}")


def check_network() -> None:
    """Between nodes: memory can be pinned, and NCCL's log names InfiniBand."""
    if WORLD == NODE:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY:
        fail(f"only {soft >> 10} KiB can be locked, and InfiniBand wants no limit: docker run --ulimit memlock=-1")
    lines = [line for file in log.parent.glob(log.name) for line in file.read_text(errors="replace").splitlines()]
    good, report = infiniband.verdict(lines, sharp=os.environ.get("NCCL_COLLNET_ENABLE") == "1")
    measure(networks=["InfiniBand"] if good else infiniband.networks(lines))
    if not good:
        fail("; ".join(report))
    if LOCAL == 0:
        print("\n".join(report))


def check_training() -> None:
    """Have a small GPT model, its layers split over two GPUs where there are, learn one batch by heart."""
    try:
        from megatron.core import parallel_state  # noqa: PLC0415
        from megatron.core.datasets import helpers_cpp  # noqa: F401, PLC0415
        from megatron.core.models.gpt import GPTModel  # noqa: PLC0415
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: PLC0415
        from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: PLC0415
        from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: PLC0415
    except ImportError as error:
        fail(f"Megatron-LM cannot be imported: {error}")

    split = 2 if NODE % 2 == 0 else 1
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=split)
    model_parallel_cuda_manual_seed(1)
    length, vocabulary = 64, 256
    config = TransformerConfig(num_layers=2, hidden_size=128, num_attention_heads=8)
    model = GPTModel(config, get_gpt_layer_local_spec(), vocabulary, length).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    text = torch.randint(vocabulary, (4, length + 1), generator=torch.Generator().manual_seed(1)).cuda()
    places = torch.arange(length, device="cuda").expand(4, length)
    hidden = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda").triu(1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(text[:, :-1], places, hidden, labels=text[:, 1:]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    progress = f"the loss of a small GPT model goes from {losses[0]:.2f} to {losses[-1]:.2f} in {len(losses)} steps"
    if not losses[-1] < losses[0] / 2:
        fail(f"Megatron-LM does not learn: {progress}")
    if RANK == 0:
        print(f"{progress}, its layers split over {split} GPUs")


torch.cuda.set_device(LOCAL)
if LOCAL == 0:  # each node's report says how many reports there must be
    measure(nodes=WORLD // NODE)
dist.init_process_group("nccl")
check_results()
check_rate()
check_network()
check_training()
dist.barrier()
dist.destroy_process_group()
