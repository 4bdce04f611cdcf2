#!/usr/bin/env python3
"""Matrix products and convolutions on the CPU are right.

The products are compared with the closed form of sums of k and k squared. A box over a plane is its area times the
middle.
"""

import sys

import torch
from torch.nn.functional import conv2d

# Every partial sum is a whole number below 2**24 (float32) or 2**53 (float64), so the results are exact.
for n, dtype in ((64, torch.float32), (512, torch.float64)):
    i = torch.arange(n, dtype=dtype)
    product = (i[:, None] + i) @ (i[:, None] - i)
    sum_k, sum_k2 = n * (n - 1) // 2, n * (n - 1) * (2 * n - 1) // 6
    expected = -n * i[:, None] * i + (i[:, None] - i) * sum_k + sum_k2
    if not torch.equal(product, expected):
        worst = (product - expected).abs().max().item()
        sys.exit(f"a {n} x {n} matrix product in {dtype} is off by up to {worst}")

plane = (torch.arange(32.0)[:, None] * 5 + torch.arange(48.0)).expand(2, 3, 32, 48).clone().requires_grad_()
result = conv2d(plane, torch.ones(4, 3, 3, 3))
if not torch.equal(result, (plane[:, :1, 1:-1, 1:-1] * 27).expand_as(result)):
    sys.exit("a 3 x 3 convolution gives wrong numbers")

# A pixel away from the edge is under nine boxes of each of the four output channels.
result.sum().backward()
if plane.grad is None or not torch.all(plane.grad[:, :, 2:-2, 2:-2] == 36):
    sys.exit("the gradient of a 3 x 3 convolution is wrong")
