#!/usr/bin/env python3
"""On a machine with GPUs: DeepSpeed's compiled fused Adam takes the steps of torch's Adam in float64 on the CPU.

Prints one line for each GPU and type. Exits 1 at the first fault, with one line about it.
"""

import sys
from collections.abc import Callable
from functools import partial

import torch
from deepspeed.git_version_info import installed_ops
from deepspeed.ops.adam import FusedAdam
from torch.optim import Adam, AdamW

SHAPES = ((1,), (513,), (3, 1025), (1024, 1024))
"""One element, more than a block of threads, no multiple of a vector's length, many chunks."""

STEPS = {torch.float32: 20, torch.bfloat16: 1, torch.float16: 1}
"""Differences would add up over twenty steps; a half type, whose state is as coarse as itself, is held to one."""

RATE, DECAY = 1e-2, 1 / 16
"""A sixteenth of whole 32nds is exact: a gradient that the decay cancels is 0, and no rest of a rounding, of which Adam
would make a whole step."""


def moved(
    adam: Callable[..., torch.optim.Optimizer], device: torch.device, dtype: torch.dtype, steps: int
) -> torch.Tensor:
    """Return the parameters after some steps, in float64 on the CPU; every type and device begins with the same."""
    generator = torch.Generator().manual_seed(0)

    def numbers() -> list[torch.Tensor]:
        # Whole numbers of 32nds, below 8: each type holds them as they are.
        drawn = [torch.randn(shape, generator=generator).mul(32).round().clamp(-255, 255).div(32) for shape in SHAPES]
        return [tensor.to(device, dtype) for tensor in drawn]

    parameters = [tensor.requires_grad_() for tensor in numbers()]
    optimizer = adam(parameters, lr=RATE, weight_decay=DECAY)
    for _ in range(steps):
        for parameter, gradient in zip(parameters, numbers(), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return torch.cat([parameter.detach().to("cpu", torch.float64).flatten() for parameter in parameters])


def check(device: torch.device, dtype: torch.dtype, steps: int) -> None:
    """Compare both kinds of weight decay; a rounding to the type is allowed at each step.

    Relative to a parameter, or to as far as Adam can have moved one that is smaller.
    """
    off = []
    for decoupled, reference in ((True, AdamW), (False, Adam)):
        expected = moved(reference, torch.device("cpu"), torch.float64, steps)
        fused = moved(partial(FusedAdam, adam_w_mode=decoupled), device, dtype, steps)
        off.append(((fused - expected).abs() / expected.abs().clamp(min=steps * RATE)).max())
    worst = torch.stack(off).max().item()  # not a number, if there is one
    allowed = steps * torch.finfo(dtype).eps
    result = f"{device}, {dtype}: after {steps} steps the fused Adam is off by {worst:.1e}; allowed is {allowed:.1e}"
    if not worst <= allowed:
        sys.exit(result)
    print(result)


if not installed_ops["fused_adam"]:
    sys.exit("DeepSpeed has no fused Adam compiled, and would compile one now")
if not torch.cuda.is_available():
    sys.exit("torch sees no GPU")
for gpu in range(torch.cuda.device_count()):
    for dtype, steps in STEPS.items():
        check(torch.device("cuda", gpu), dtype, steps)
