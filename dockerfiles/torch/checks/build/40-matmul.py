#!/usr/bin/env python3
"""Matrix products on the CPU are right, against the closed form of sums of k and k squared."""

import sys

import torch

# Every partial sum is a whole number below 2**24 (float32) or 2**53 (float64), so the results are exact.
for n, dtype in ((64, torch.float32), (512, torch.float64)):
    i = torch.arange(n, dtype=dtype)
    product = (i[:, None] + i) @ (i[:, None] - i)
    sum_k, sum_k2 = n * (n - 1) // 2, n * (n - 1) * (2 * n - 1) // 6
    expected = -n * i[:, None] * i + (i[:, None] - i) * sum_k + sum_k2
    if not torch.equal(product, expected):
        worst = (product - expected).abs().max().item()
        sys.exit(f"a {n} x {n} matrix product in {dtype} is off by up to {worst}")
