#!/usr/bin/env python3
"""NCCL is right over all GPUs of all nodes, and goes over EFA. Started by torchrun, with provider.py beside it.

Exits with 1, and one line for each process and reason, if an operation hangs or its result is wrong, NCCL's log does
not name EFA's provider, or the bus bandwidth is below EXPECTED_BUS_BANDWIDTH, a number of GB/s, where that is set. Its
measurements go to the file GPU_MEASUREMENTS too, if set: common/gpu/report.py sets it, and reads NCCL's log.
"""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

# Before NCCL is loaded; %h and %p are NCCL's own: the host, and the number of the process. A report has its own log.
if not (os.environ.get("GPU_MEASUREMENTS") and os.environ.get("NCCL_DEBUG_FILE")):
    os.environ["NCCL_DEBUG_FILE"] = f"{Path(tempfile.mkdtemp(), 'nccl')}.%h.%p"
os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH"}
log = Path(os.environ["NCCL_DEBUG_FILE"].replace("%h", "*").replace("%p", str(os.getpid())))

import provider  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

LIMIT = 300
"""Seconds after which an operation hangs."""


def measure(**values: object) -> None:
    """Add to the report of the checks what was measured."""
    if path := os.environ.get("GPU_MEASUREMENTS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def hang(operation: str) -> None:
    """End this process: it waits for the GPU, and no exception reaches it."""
    print(f"rank {rank}: {operation} over {world} GPUs has not ended after {LIMIT} s", file=sys.stderr, flush=True)
    os._exit(1)


bandwidth = os.environ.get("EXPECTED_BUS_BANDWIDTH") or "0"
try:
    least = float(bandwidth)
except ValueError:
    sys.exit(f"EXPECTED_BUS_BANDWIDTH is '{bandwidth}'; give a number of GB/s, or leave it out")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
if os.environ["LOCAL_RANK"] == "0":  # each node's report says how many reports there must be
    measure(nodes=world // int(os.environ["LOCAL_WORLD_SIZE"]))
dist.init_process_group("nccl")

# Whole numbers, and sums below 2**24, which float32 holds exactly.
part = torch.arange((1 << 26) // world, device="cuda", dtype=torch.float32).remainder_(1024)
own, total, good = part * (rank + 1), world * (world + 1) // 2, True
operations = {
    "all-reduce": (lambda whole, _: dist.all_reduce(whole), (part * total).repeat(world)),
    "broadcast": (lambda whole, _: dist.broadcast(whole, 0), part.repeat(world)),
    "all-gather": (dist.all_gather_into_tensor, torch.cat([part * (each + 1) for each in range(world)])),
    "reduce-scatter": (lambda whole, each: dist.reduce_scatter_tensor(each, whole), part * total),
}
for name, (run, expected) in operations.items():
    numbers, each = own.repeat(world), own * 1
    timer = threading.Timer(LIMIT, hang, [name])
    timer.daemon = True  # it must keep no failed process alive
    timer.start()
    run(numbers, each)
    torch.cuda.synchronize()
    timer.cancel()
    result = each if name == "reduce-scatter" else numbers
    if not torch.equal(result, expected):
        good = False
        print(f"rank {rank}: {name} is off by {(result - expected).abs().max().item()}", file=sys.stderr)

dist.barrier()  # else the first to be here also times its wait for the last
torch.cuda.synchronize()
start, rounds = time.perf_counter(), 10
for _ in range(rounds):
    dist.all_reduce(numbers)
torch.cuda.synchronize()
# Bus bandwidth as NCCL's tests define it: bytes over time, times 2(n-1)/n.
rate = numbers.nbytes * rounds / (time.perf_counter() - start) * 2 * (world - 1) / world / 1e9
fast = rate >= least
if rank == 0:
    measure(busBandwidth=round(rate, 1), gpus=world, torch=torch.__version__, cuda=torch.version.cuda)
    print(f"all-reduce of {numbers.nbytes >> 20} MiB over {world} GPUs: {rate:.1f} GB/s bus bandwidth")
if not fast:
    print(f"rank {rank}: {rate:.1f} GB/s bus bandwidth, EXPECTED_BUS_BANDWIDTH is {least:g}", file=sys.stderr)

lines = [line for file in log.parent.glob(log.name) for line in file.read_text(errors="replace").splitlines()]
efa, report = provider.verdict(lines)
measure(networks=sorted(set().union(*(one.providers or one.networks for one in provider.read(lines).values()))))
print("\n".join(f"rank {rank}: {line}" for line in report), file=sys.stdout if efa else sys.stderr)
dist.destroy_process_group()
sys.exit(not (good and efa and fast))
